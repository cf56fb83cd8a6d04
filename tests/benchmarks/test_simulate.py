"""The simulation counts steps, pauses and continues trials, and records the regret."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from bbkb.orchestrator.errors import CampaignError
from benchmarks.curves.problems import CurveProblem
from benchmarks.curves.simulate import Continue, Record, Setting, Start, Suggestion, at_marks, search


class Script:
    """Gives the suggestions of a list, then new trials; pauses each trial at the steps of
    `pauses`."""

    watches = True

    def __init__(self, problem: CurveProblem, suggestions: Sequence[Suggestion | None], pauses: set[int]) -> None:
        assert problem.arms is not None
        self._arms, self._suggestions, self._pauses = problem.arms, list(suggestions), pauses
        self._next = 0
        self.reports: list[tuple[int, int]] = []
        self.ends: list[int] = []

    def suggest(self) -> Suggestion | None:
        if self._suggestions:
            suggestion = self._suggestions.pop(0)
            if suggestion is None or isinstance(suggestion, Continue):
                return suggestion
        self._next += 1
        return Start(self._arms.parameters(self._next - 1))

    def report(self, trial: int, step: int, value: float) -> bool:
        self.reports.append((trial, step))
        return step not in self._pauses

    def end(self, trial: int, value: float) -> None:
        self.ends.append(trial)


def start(problem: CurveProblem) -> Start:
    assert problem.arms is not None
    return Start(problem.arms.parameters(0))


def test_paused_trial_continues_from_its_step(problem: CurveProblem) -> None:
    method = Script(problem, [start(problem), Continue(0)], {2})
    record = search(problem, method, "script", Setting(workers=1, trainings=1, seed=0))
    assert method.reports[:4] == [(0, 1), (0, 2), (0, 3), (0, 4)]
    assert method.ends == [0]
    assert (record.starts, record.continuations, record.finished) == (1, 1, 1)


def test_running_trial_cannot_be_continued(problem: CurveProblem) -> None:
    with pytest.raises(CampaignError, match="trial 0 is not paused"):
        search(
            problem, Script(problem, [start(problem), Continue(0)], set()), "x", Setting(workers=2, trainings=1, seed=0)
        )


def test_waiting_while_nothing_runs_is_an_error(problem: CurveProblem) -> None:
    with pytest.raises(CampaignError, match="waits on taskset-0"):
        search(problem, Script(problem, [None], set()), "script", Setting(workers=1, trainings=1, seed=0))


def test_search_ends_after_all_configurations(problem: CurveProblem) -> None:
    assert problem.arms is not None
    suggestions: list[Suggestion | None] = [start(problem)] * len(problem.arms)
    method = Script(problem, [*suggestions, None], {1})
    record = search(problem, method, "script", Setting(workers=1, trainings=9, seed=0))
    assert record.starts == len(problem.arms)


def test_budget_counts_reported_steps(problem: CurveProblem) -> None:
    method = Script(problem, [], set())
    search(problem, method, "script", Setting(workers=3, trainings=2, seed=0))
    assert len(method.reports) + len(method.ends) == 2 * problem.last_step


def test_recommendation_is_the_trial_with_the_best_last_value(problem: CurveProblem) -> None:
    record = search(problem, Script(problem, [], {3}), "script", Setting(workers=1, trainings=1, seed=0))
    assert problem.arms is not None
    curves = [problem.curve(problem.arms.parameters(arm)) for arm in range(record.starts)]
    assert record.starts == 9  # 27 steps, three each
    best = max(curves, key=lambda curve: float(curve[2]))
    assert record.regrets[-1] == pytest.approx(problem.regret(float(best[-1])))
    assert np.all(np.diff(record.used) >= 0)


def test_method_without_reports_pays_whole_trainings_only(problem: CurveProblem) -> None:
    class Blind(Script):
        watches = False

    anew = replace(problem, costs=tuple(2 * one for one in problem.costs))
    method = Blind(anew, [], set())
    record = search(anew, method, "blind", Setting(workers=1, trainings=3, seed=0))
    assert record.finished == 3
    assert not method.reports


def test_regret_before_the_first_report_equals_the_first_regret() -> None:
    record = Record(
        problem="p", method="m", workers=1, trainings=1, seed=0, used=[0.2, 0.6], regrets=[0.5, 0.1],
        finished_regret=None, starts=1, continuations=0, finished=0, seconds=0.0,
    )  # fmt: skip
    assert at_marks(record, [0.1, 0.2, 0.5, 0.6, 1.0]).tolist() == [0.5, 0.5, 0.5, 0.1, 0.1]
