"""An experiment: a value with its source, and a function from a request to findings."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.papers.findings import Findings
from objectives.reference import did_you_mean
from orchestrator.errors import UserError


@dataclass(frozen=True)
class Request:
    """The options of one command line.

    Attributes:
        seeds: the number of seeds, which are 0 … `seeds` − 1.
        evaluations: the horizon T.
        methods: the names of the methods to run, some of the experiment's.
        out: the folder for runs and results.
        jobs: the number of campaigns at the same time.
        data: the folder with data sets, if one is given.
        authors: a folder with the code of a paper's authors, if one is given.
    """

    seeds: int
    evaluations: int
    methods: tuple[str, ...]
    out: Path
    jobs: int = 1
    data: Path | None = None
    authors: Path | None = None


@dataclass(frozen=True)
class Experiment:
    """An experiment of a paper.

    Attributes:
        source: paper, section and figures.
        summary: one line.
        methods: all names that `--methods` allows.
        evaluations: the paper's horizon T.
        run: runs the experiment.
        default_methods: the methods that run when none is given; all if empty.
    """

    source: str
    summary: str
    methods: tuple[str, ...]
    evaluations: int
    run: Callable[[Request], Findings]
    default_methods: tuple[str, ...] = ()

    def chosen(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """`names` in the experiment's order; the default ones when empty. Raises UserError on an
        unknown one."""
        for name in names:
            if name not in self.methods:
                hint = did_you_mean(name, self.methods)
                raise UserError(f"--methods must be some of {','.join(self.methods)}, got {name!r}{hint}")
        shown_names = names or self.default_methods or self.methods
        return tuple(name for name in self.methods if name in shown_names)
