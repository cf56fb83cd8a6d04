"""The strategy `bbkb`, which takes the last value of a stopped trial for its final value."""

from benchmarks.curves.problems import CurveProblem
from benchmarks.curves.simulate import Start, Suggestion
from benchmarks.peers.methods.ours import Ours, OursInSpace
from orchestrator.campaign.trainings.rungs import Rungs, StoppingRule


class Bbkb:
    """The strategy through `Optimizer`, with the stopping rule `rule`; None: every training runs to
    its end."""

    def __init__(self, problem: CurveProblem, seed: int, rule: StoppingRule | None) -> None:
        self.watches = rule is not None
        settings = {"name": "bbkb"}
        self._strategy: Ours | OursInSpace
        if problem.arms is None:
            self._strategy = OursInSpace(problem.space, seed, settings)
        else:
            self._strategy = Ours(problem.arms, seed, settings)
        self._rule, self._rungs, self._started = rule, Rungs(), 0

    def suggest(self) -> Suggestion | None:
        point = self._strategy.ask(self._started)
        if point is None:
            return None
        self._started += 1
        return Start(point)

    def report(self, trial: int, step: int, value: float) -> bool:
        if self._rule is None:
            return True
        self._rungs = self._rungs.after(self._rule, trial, step, value)
        if not self._rungs.stops(self._rule, trial):
            return True
        self._end(trial, value)
        return False

    def end(self, trial: int, value: float) -> None:
        self._end(trial, value)

    def recommend(self) -> None:
        return None

    def _end(self, trial: int, value: float) -> None:
        self._rungs = self._rungs.without(trial)
        self._strategy.tell(trial, value)
