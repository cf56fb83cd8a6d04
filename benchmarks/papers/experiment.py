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

    Seeds are 0 … `seeds` − 1. `evaluations` is the horizon T, `methods` the names of the methods to run (a subset of
    the experiment's), `jobs` the number of campaigns at the same time, `out` the folder for runs and results,
    `authors` a folder with the code of a paper's authors.
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

    `source` is paper, section and figures; `summary` one line; `methods` all names that `--methods` allows, of
    which `default_methods` (all if empty) run when none is given; `evaluations` the paper's horizon T.
    """

    source: str
    summary: str
    methods: tuple[str, ...]
    evaluations: int
    run: Callable[[Request], Findings]
    default_methods: tuple[str, ...] = ()

    def chosen(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """`names` in the experiment's order; the default ones when empty. Raises UserError on an unknown one."""
        for name in names:
            if name not in self.methods:
                hint = did_you_mean(name, self.methods)
                raise UserError(f"--methods must be some of {','.join(self.methods)}, got {name!r}{hint}")
        wanted = names or self.default_methods or self.methods
        return tuple(name for name in self.methods if name in wanted)
