"""The problems by name, in families.

A family has two halves: rules are developed on one, and judged on the other, `…-verdict`. The
family `space` has the tasks of `taskset` and `taskset-verdict` as continuous spaces.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

from benchmarks.curves import lcbench, noise, own, recorded
from benchmarks.curves.problems import CurveProblem
from objectives.datasets import DataSource

_TASKSET = [f"taskset-{number}" for number in range(recorded.TASKSET_TASKS + recorded.TASKSET_OTHER_TASKS)]
FAMILIES: Mapping[str, tuple[str, ...]] = {
    "lcbench": tuple(f"lcbench-{task}" for task in lcbench.TASKS),
    "taskset": tuple(_TASKSET[: recorded.TASKSET_TASKS]),
    "nb101": ("nb101",),
    "own": tuple(f"own-{name}" for name in own.DEVELOP),
    "lcbench-verdict": tuple(f"lcbench-{task}" for task in lcbench.VERDICT_TASKS),
    "taskset-verdict": tuple(_TASKSET[recorded.TASKSET_TASKS :]),
    "own-verdict": tuple(f"own-{name}" for name in own.VERDICT),
    "space": tuple(name.replace("taskset", "space") for name in _TASKSET),
    "noise": ("noise",),
}
PROBLEMS = tuple(name for names in FAMILIES.values() for name in names)


@cache
def load_problem(name: str, source: DataSource, own_folder: Path = own.FOLDER) -> CurveProblem:
    """Load the problem `name` of PROBLEMS; the curves of `own-…` are in `own_folder`.

    Raises ObjectiveError if its data are missing.
    """
    family, _, number = name.partition("-")
    match family:
        case "lcbench":
            return lcbench.load(number, source)
        case "taskset":
            return recorded.load_taskset(int(number), source)
        case "space":
            return replace(recorded.load_taskset(int(number), source), name=name, arms=None)
        case "noise":
            return noise.load()
        case "own":
            return own.load(number, own_folder)
    return recorded.load_cells(source)
