"""An experiment of a paper: its methods, and a function from the options to tables."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.tables import Table
from objectives.keywords import did_you_mean
from orchestrator.errors import UserError


@dataclass(frozen=True)
class Request:
    """The options of one command line."""

    seeds: int  # the number of seeds, which are 0 … `seeds` − 1
    evaluations: int  # the horizon T
    methods: tuple[str, ...]  # the names of the methods to run, some of the experiment's
    out: Path  # the folder for runs and results
    jobs: int = 1  # the number of campaigns at the same time
    data: Path | None = None  # the folder with data sets, if one is given


@dataclass(frozen=True)
class Experiment:
    """An experiment of a paper."""

    source: str  # paper, section and figures
    summary: str  # one line
    methods: tuple[str, ...]  # all names that `--methods` allows
    evaluations: int  # the paper's horizon T
    run: Callable[[Request], Sequence[Table]]  # runs the experiment
    default_methods: tuple[str, ...] = ()  # the methods to run by default; all if empty

    def chosen(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Return `names` in the experiment's order, or the default methods if it is empty.

        Raises:
            UserError: a name is unknown.
        """
        for name in names:
            if name not in self.methods:
                known = ",".join(self.methods)
                hint = did_you_mean(name, self.methods)
                raise UserError(f"--methods must be some of {known}, got {name!r}{hint}")
        shown = names or self.default_methods or self.methods
        return tuple(name for name in self.methods if name in shown)
