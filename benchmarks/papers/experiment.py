"""An experiment: a value with its source, and a function from a request to findings."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.papers.findings import Findings
from objectives.reference import did_you_mean
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
    authors: Path | None = None  # a folder with the code of a paper's authors, if one is given


@dataclass(frozen=True)
class Experiment:
    """An experiment of a paper."""

    source: str  # paper, section and figures
    summary: str  # one line
    methods: tuple[str, ...]  # all names that `--methods` allows
    evaluations: int  # the paper's horizon T
    run: Callable[[Request], Findings]  # runs the experiment
    default_methods: tuple[str, ...] = ()  # the methods that run when none is given; all if empty

    def chosen(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """`names` in the experiment's order; the default ones when empty. Raises UserError on an
        unknown one."""
        for name in names:
            if name not in self.methods:
                hint = did_you_mean(name, self.methods)
                raise UserError(f"--methods must be some of {','.join(self.methods)}, got {name!r}{hint}")
        shown_names = names or self.default_methods or self.methods
        return tuple(name for name in self.methods if name in shown_names)
