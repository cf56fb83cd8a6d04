"""The problems by name, in families."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from rich.console import Console
from rich.text import Text

from benchmarks.curves import lcbench, recorded
from benchmarks.curves.problems import CurveProblem
from objectives.datasets import DataSource

FAMILIES: Mapping[str, tuple[str, ...]] = {
    "lcbench": tuple(f"lcbench-{task}" for task in lcbench.TASKS),
    "taskset": tuple(f"taskset-{number}" for number in range(recorded.TASKSET_TASKS)),
    "nb101": ("nb101",),
    "own": tuple(f"own-{name}" for name in recorded.OWN),
}
PROBLEMS = tuple(name for names in FAMILIES.values() for name in names)


@cache
def load_problem(name: str, source: DataSource, own_folder: Path) -> CurveProblem:
    """The problem `name` of PROBLEMS; raises ObjectiveError when its data are missing. `own_folder`:
    folder of own-…."""
    family, _, number = name.partition("-")
    match family:
        case "lcbench":
            return lcbench.load(number, source)
        case "taskset":
            return recorded.load_taskset(int(number), source)
        case "own":
            console = Console(stderr=True)
            return recorded.load_own(number, own_folder, lambda line: console.print(Text(line), soft_wrap=True))
    return recorded.load_cells(source)
