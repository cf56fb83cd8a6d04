"""The problems by name, in families."""

from collections.abc import Mapping
from functools import cache

from benchmarks.curves import lcbench, recorded
from benchmarks.curves.problems import CurveProblem
from objectives.datasets import DataSource

FAMILIES: Mapping[str, tuple[str, ...]] = {
    "lcbench": tuple(f"lcbench-{task}" for task in lcbench.TASKS),
    "taskset": tuple(f"taskset-{number}" for number in range(recorded.TASKSET_TASKS)),
    "nb101": ("nb101",),
}
PROBLEMS = tuple(name for names in FAMILIES.values() for name in names)


@cache
def load_problem(name: str, source: DataSource) -> CurveProblem:
    """Load the problem `name` of PROBLEMS. Raises ObjectiveError if its data are missing."""
    family, _, number = name.partition("-")
    match family:
        case "lcbench":
            return lcbench.load(number, source)
        case "taskset":
            return recorded.load_taskset(int(number), source)
    return recorded.load_cells(source)
