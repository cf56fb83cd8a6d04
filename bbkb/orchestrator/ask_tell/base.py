"""The common base of `Optimizer` and `CandidateOptimizer`."""

import functools
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Concatenate, ParamSpec, Self, TypeVar

from bbkb.objectives.keywords import arguments_of, refuse_unknown
from bbkb.orchestrator.ask_tell.results import Results
from bbkb.orchestrator.ask_tell.saving import FORMAT, Entry, Kind, dump_log, read_log, read_saved, write_saved
from bbkb.orchestrator.ask_tell.search import Search
from bbkb.orchestrator.bandit.blas import blas_threads
from bbkb.orchestrator.bandit.strategy import Posterior
from bbkb.orchestrator.campaign.trial_result import TrialResult, Trials
from bbkb.orchestrator.wording import facts_html

Owner = TypeVar("Owner", bound="AskTell")
P = ParamSpec("P")
R = TypeVar("R")


def exclusive(method: Callable[Concatenate[Owner, P], R]) -> Callable[Concatenate[Owner, P], R]:
    """Return `method` such that it waits until no other thread is in an exclusive method of the
    same object, and computes with one thread of BLAS. Exclusive methods may call each other.

    Args:
        method: a method, or the function of a property.
    """

    arguments = arguments_of(method)

    @functools.wraps(method)
    def wait_and_call(self: Owner, /, *args: P.args, **options: P.kwargs) -> R:
        refuse_unknown(method.__qualname__, options, arguments)
        with self._lock, blas_threads(1):
            return method(self, *args, **options)

    return wait_and_call


class AskTell:
    """A search that several threads may use and that can be saved."""

    KIND: ClassVar[Kind]
    NOUN: ClassVar[str] = "value"
    SETUP: ClassVar[type[Any]]  # the arguments: `title`, `dump`, `build`, `search`

    def __init__(self, setup: Any, search: Search) -> None:
        self._lock = threading.RLock()
        self._setup = setup
        self._search = search

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
        read_saved(path, optimizer._restore, cls.KIND, run_code)
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
        write_saved(path, self._saved())

    @property
    @exclusive
    def trials(self) -> Trials:
        """The results in the order of `tell`. The value of a failed evaluation is None."""
        return self._results.trials

    @property
    @exclusive
    def best(self) -> TrialResult:
        """The recommended trial. Its `value` is the mean of its `evaluations` values.

        It is the trial with the best mean value. If the fitted model indicates that values are
        noisy, it is the evaluated trial with the best `estimate` of the noise-free value. With
        several objectives or constraints, it is the first trial of the `front`.

        Raises ValueError before the first value, or if no result satisfies all constraints.
        """
        return self._results.best

    @property
    @exclusive
    def best_observed(self) -> TrialResult:
        """The trial with the best single value, which may be due to noise. With several objectives
        or constraints, it is the first trial of the `front`.

        Raises ValueError before the first value, or if no result satisfies all constraints.
        """
        return self._results.best_observed

    @property
    @exclusive
    def posterior(self) -> Posterior:
        """The mean, variance and upper confidence bound of each candidate's reward, and the unit of
        the variance. Rewards are maximized: values that are minimized are multiplied by −1."""
        return self._search.strategy.posterior(self._search.view)

    @exclusive
    def __repr__(self) -> str:
        counts = f"{len(self._search.results)} {self.NOUN}s, {len(self._search.pending)} pending"
        return f"<{type(self).__name__} of {self._setup.title}: {counts}>"

    @exclusive
    def _repr_html_(self) -> str:
        """Return a small table, for notebooks."""
        return facts_html(f"{type(self).__name__} of {self._setup.title}", self._results.facts)

    @property
    def _results(self) -> Results:
        return Results(self._search, self.NOUN)

    @exclusive
    def _saved(self) -> Entry:
        """Return the optimizer as plain values."""
        return {"format": FORMAT, **self._setup.dump(), "log": dump_log(self._search.events)}

    def _restore(self, saved: Mapping[str, Any]) -> None:
        """Restore the values that `_saved` returned."""
        setup = self.SETUP.build(saved)
        search: Search = setup.search()
        for event in read_log(saved["log"]):
            search.restore(event)
        AskTell.__init__(self, setup, search)

    __getstate__ = _saved
    __setstate__ = _restore
