"""The common base of `Optimizer` and `CandidateOptimizer`: results on the user's scale, and saved files.

A file of `save` is one JSON object with the arguments and the log of events. Reading it folds the events
again, without draws or fits. A file with `space` contains a search over configurations, and a file with
`arms` contains a search over the rows of an array.
"""

import functools
import hashlib
import json
import sys
import threading
import tokenize
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any, ClassVar, Concatenate, Literal, ParamSpec, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from bbkb.objectives.errors import arguments_of, has_users_frame, is_raised_in, refuse_unknown, users_cause
from bbkb.objectives.objective import ObjectiveError
from bbkb.orchestrator.ask_tell.search import ArmResult, Search
from bbkb.orchestrator.bandit.arrays import blas_threads
from bbkb.orchestrator.bandit.model.model import model_of, scores_among
from bbkb.orchestrator.bandit.options import excerpt
from bbkb.orchestrator.bandit.pulls import bounded
from bbkb.orchestrator.bandit.strategy import EstimatesRewards, Posterior, Recommends
from bbkb.orchestrator.campaign.goals import CampaignGoals
from bbkb.orchestrator.campaign.results import Point, TrialResult, Trials, trial_result, with_point
from bbkb.orchestrator.files import read_small, write_text
from bbkb.orchestrator.wording import facts_html, one_line

Entry = dict[str, Any]  # a call, a result, or a complete file, as JSON values

FORMAT = 1
_CHECKSUM = "checksum"  # of the other entries
# the exceptions that the constructors raise for a damaged file
_DAMAGES = (
    ValueError,
    KeyError,
    TypeError,
    IndexError,
    AttributeError,
    OverflowError,
    RecursionError,
    MemoryError,  # for a number of rows or columns that no machine can hold
    ObjectiveError,
    tokenize.TokenError,  # of NumPy, for the header of an array
)
_SHOWN = 1000  # characters of an error's text, which may repeat a value of the file
Kind = Literal["arms", "space"]  # the key that identifies a file of this kind
_MOST_BYTES = 2_000_000_000  # of a saved file
_CLASSES: Mapping[Kind, str] = {"arms": "CandidateOptimizer", "space": "Optimizer"}
# the places that find a user's mistakes
_CHECKING = ("bbkb.objectives", "bbkb.orchestrator.ask_tell", "bbkb.orchestrator.settings.arguments")

Owner = TypeVar("Owner", bound="AskTell")
P = ParamSpec("P")
R = TypeVar("R")


def exclusive(method: Callable[Concatenate[Owner, P], R]) -> Callable[Concatenate[Owner, P], R]:
    """Return `method` such that it waits until no other thread is in an exclusive method of the
    same object, and computes with one thread of BLAS. Exclusive methods may call each other. The
    tracebacks of a user's mistakes end near the user's line.

    Args:
        method: a method, or the function of a property.
    """

    arguments = arguments_of(method)

    @functools.wraps(method)
    def wait_and_call(self: Owner, /, *args: P.args, **options: P.kwargs) -> R:
        refuse_unknown(method.__qualname__, options, arguments)
        try:
            with self._lock, blas_threads(1):
                return method(self, *args, **options)
        except (ObjectiveError, ValueError) as error:
            # other errors are of a strategy or of this project, and need their frames
            if has_users_frame(error) or not is_raised_in(error, *_CHECKING):
                raise
            raise error.with_traceback(None) from users_cause(error)

    return wait_and_call


class AskTell:
    """A search that several threads may use and that can be saved."""

    KIND: ClassVar[Kind]
    NOUN: ClassVar[str] = "value"

    def __init__(self, search: Search) -> None:
        self._lock = threading.RLock()
        self._search = search

    @property
    def _title(self) -> str:
        """What is searched."""
        raise NotImplementedError

    def _arguments(self) -> Entry:
        """Return the arguments as plain values."""
        raise NotImplementedError

    @staticmethod
    def _begun(saved: Mapping[str, Any]) -> Search:
        """Return the search, before any event, with the arguments that `_arguments` returned."""
        raise NotImplementedError

    @classmethod
    def load(cls, path: str | Path, *, run_code: bool = False) -> Self:
        """Read the optimizer that `save` wrote. It continues exactly as the saved one would have.

        Args:
            path: the file that `save` wrote.
            run_code: whether to import the module of a strategy of your own, which runs its code.
                Otherwise, such a strategy must already be imported.

        Raises:
            ValueError: if the file cannot be read, or was not written by this class.
        """
        optimizer = cls.__new__(cls)
        try:
            saved = json.loads(read_small(Path(path), _MOST_BYTES).decode("utf-8"))
            if not isinstance(saved, dict) or saved.get("format") != FORMAT:
                raise ValueError(f"its format must be {FORMAT}")
            if _CHECKSUM in saved and saved.pop(_CHECKSUM) != _checksum(saved):
                raise ValueError("its checksum differs from its content; to load it anyway, remove `checksum`")
            for other, written_by in _CLASSES.items():
                if other != cls.KIND and other in saved:
                    raise ValueError(f"it was written by {written_by}; write {written_by}.load(path)")
            strategy = saved.get("strategy")
            name = strategy.get("name") if isinstance(strategy, dict) else strategy
            module, colon, _ = str(name).rpartition(":")
            if colon and module not in sys.modules and not run_code:
                raise ValueError(
                    f"its strategy is {name}, and loading it runs the code of {module}: import {module} first, or "
                    "pass run_code=True, if you trust the file"
                )
            optimizer._restore(saved)
        except OSError as error:
            raise ValueError(
                f"path must be a file that save wrote, got {excerpt(str(path))}: {error.strerror}"
            ) from error
        except _DAMAGES as error:
            reason = one_line(f"{type(error).__name__}: {error}", _SHOWN)
            raise ValueError(f"{path} is not a saved {_CLASSES[cls.KIND]}: {reason}") from error
        return optimizer

    @exclusive
    def save(self, path: str | Path) -> None:
        """Write the optimizer to a file as JSON, atomically. `load` reads it.

        Args:
            path: the file to write.

        Raises:
            ValueError: if the strategy contains objects of your own classes.
            OSError: if the file cannot be written.
        """
        saved = self._saved()
        write_text(Path(path), json.dumps({**saved, _CHECKSUM: _checksum(saved)}) + "\n")

    @property
    @exclusive
    def trials(self) -> Trials:
        """The results in the order of `tell`. The value of a failed evaluation is None."""
        return tuple(self._trial(result) for result in self._search.results)

    @property
    @exclusive
    def best(self) -> TrialResult:
        """The recommended trial. Its `value` is the mean of its `evaluations` values.

        It is the trial with the best mean value. If the fitted model indicates that values are
        noisy, it is the evaluated trial with the best `estimate` of the noise-free value. With
        several objectives or constraints, it is the first trial of the `front`.

        Raises ValueError before the first value, or if no result satisfies all constraints.
        """
        if not self._goals.is_single:
            return self._first_of_front("best")
        self._check_any("best")
        strategy, model = self._search.strategy, self._model
        pulls = model.pulls
        arm = strategy.recommend(model) if isinstance(strategy, Recommends) else None
        belief = None
        if arm is None:
            means = pulls.reward_sums[pulls.finished_arms] / pulls.counts[pulls.finished_arms]
            arm = int(pulls.finished_arms[np.argmax(means)])
        elif isinstance(strategy, EstimatesRewards):
            belief = strategy.estimate(model, arm)
        value = self._goals.value
        best = self._mean(arm, value(float(pulls.reward_sums[arm] / pulls.counts[arm])), {})
        return best if belief is None else replace(best, estimate=value(belief[0]), deviation=belief[1])

    @property
    @exclusive
    def best_observed(self) -> TrialResult:
        """The trial with the best single value, which may be due to noise. With several objectives
        or constraints, it is the first trial of the `front`.

        Raises ValueError before the first value, or if no result satisfies all constraints.
        """
        if not self._goals.is_single:
            return self._first_of_front("best_observed")
        self._check_any("best_observed")
        valued = (each for each in self._search.results if each.value is not None)
        return self._trial(max(valued, key=lambda each: self._goals.reward(each.value or 0.0)))

    @property
    @exclusive
    def posterior(self) -> Posterior:
        """The mean, variance and upper confidence bound of each candidate's reward, and the unit of
        the variance. Rewards are maximized: values that are minimized are multiplied by −1."""
        return self._search.strategy.posterior(self._search.view)

    @exclusive
    def __repr__(self) -> str:
        counts = f"{len(self._search.results)} {self.NOUN}s, {len(self._search.pending)} pending"
        return f"<{type(self).__name__} of {self._title}: {counts}>"

    @exclusive
    def _repr_html_(self) -> str:
        """Return a small table, for notebooks."""
        search = self._search
        facts = [(f"{self.NOUN}s", str(len(search.results))), ("pending", str(len(search.pending)))]
        if self._front:
            best = self.best
            listed = ", ".join(f"{name}={setting!r}" for name, setting in best.parameters.items())
            facts += [(f"best {self.NOUN}", f"{best.value:.6g}"), ("best parameters", listed)]
        return facts_html(f"{type(self).__name__} of {self._title}", facts)

    @property
    def _goals(self) -> CampaignGoals:
        return self._search.state.settings.goals

    @property
    def _model(self) -> Any:
        return self._search.view

    def _check_any(self, name: str) -> None:
        if not len(self._model.pulls.finished_arms):
            raise ValueError(f"{name} needs at least one {self.NOUN}; call ask, evaluate, and call tell first")

    def _first_of_front(self, name: str) -> TrialResult:
        self._check_any(name)
        if front := self._front:
            return front[0]
        raise ValueError("no configuration with a result satisfies all constraints")

    @property
    def _front(self) -> Trials:
        """The feasible trials that no other trial dominates, with mean values, the best first objective
        first."""
        goals = self._goals
        count = len(goals.objectives)
        pulls = self._model.pulls
        finished = pulls.finished_arms
        means = np.array([output.reward_sums[finished] / output.counts[finished] for output in pulls.outputs])
        feasible = np.flatnonzero((means[count:] >= 0.0).all(axis=0))
        arms: dict[Point, int] = {}
        points: list[Point] = []
        for position in feasible.tolist():
            point = tuple(means[:count, position].tolist())
            if point not in arms:
                arms[point] = int(finished[position])
                points = with_point(points, point)
        front: list[TrialResult] = []
        for point in sorted(points, reverse=True):
            pairs = zip(goals.objectives, point, strict=True)
            values = {objective.metric: objective.value(reward) for objective, reward in pairs}
            results = self._results_of(arms[point])
            for goal in goals.constraints if results else ():
                if goal.metric not in values:
                    values[goal.metric] = fmean(bounded([each.metrics[goal.metric] for each in results]))
            front.append(self._mean(arms[point], next(iter(values.values())), {} if goals.is_single else values))
        return tuple(front)

    def _scores(self, rewards: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return `rewards` (n,) as for the model: as scores relative to the results under a
        calibrated model, otherwise unchanged. Raises ValueError before the first result."""
        pulls = self._model.pulls
        if pulls.total == 0:
            raise ValueError("scores needs at least one result; call ask, evaluate, and call tell first")
        return scores_among(pulls, model_of(self._search.strategy), rewards)

    def _trial(self, result: ArmResult) -> TrialResult:
        parameters = self._search.candidates.parameters(result.arm)
        status = "failed" if result.value is None else "succeeded"
        settings = self._search.state.settings
        return trial_result(settings, result.trial, parameters, status, result.value, result.metrics)

    def _mean(self, arm: int, value: float, metrics: Mapping[str, float]) -> TrialResult:
        """Return an arm with the mean of its values."""
        trials = [each.trial for each in self._results_of(arm)]
        return TrialResult(
            trial=trials[0] if trials else None,
            parameters=self._search.parameters(arm),
            value=value,
            status="succeeded" if trials else "existing",
            metrics=metrics,
            is_feasible=True if self._goals.constraints else None,
            evaluations=int(self._model.pulls.finished.counts[arm]),
        )

    def _results_of(self, arm: int) -> list[ArmResult]:
        """Return the results of an arm that have a value."""
        return [each for each in self._search.results if each.arm == arm and each.value is not None]

    @exclusive
    def _saved(self) -> Entry:
        """Return the optimizer as plain values."""
        # imported here, because only saving needs pydantic
        from bbkb.orchestrator.campaign.events import body_of

        log = [[event.kind, json.loads(body_of(event))] for event in self._search.events]
        return {"format": FORMAT, **self._arguments(), "log": log}

    def _restore(self, saved: Mapping[str, Any]) -> None:
        """Restore the values that `_saved` returned."""
        from bbkb.orchestrator.campaign.events import event_of

        search = self._begun(saved)
        for kind, body in saved["log"]:
            search.restore(event_of(kind, json.dumps(body)))
        AskTell.__init__(self, search)

    __getstate__ = _saved
    __setstate__ = _restore


def _checksum(saved: Mapping[str, object]) -> str:
    return hashlib.sha256(json.dumps(saved).encode()).hexdigest()
