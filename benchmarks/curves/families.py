"""The problems by name, in families.

A family has two halves: rules are developed on one, and judged on the other, `…-verdict`. The
family `space` has the tasks of `taskset` and `taskset-verdict` as continuous spaces. The values of
the problem `noise` before the last one are pure noise.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from bbkb.objectives.parameters import Range, Space
from bbkb.objectives.reference import DataSource
from benchmarks.curves import own, problems
from benchmarks.curves.problems import Configuration, CurveProblem, Floats

_NOISE_STEPS = 51
_NOISE_SPACE: Space = {name: Range(0.0, 1.0) for name in "abcd"}


def _last_value(positions: Sequence[Any]) -> float:
    squares = [(position - 0.3 * place - 0.2) ** 2 for place, position in enumerate(positions)]
    return -4.0 * float(sum(squares))


def _noise_curve(configuration: Configuration) -> Floats:
    text = repr(sorted(configuration.items()))
    rng = np.random.default_rng(int(hashlib.md5(text.encode()).hexdigest()[:8], 16))
    last = _last_value([configuration[name] for name in sorted(_NOISE_SPACE)])
    return np.append(rng.normal(-6.0, 0.7, _NOISE_STEPS - 1), last)


def _load_noise() -> CurveProblem:
    """The problem: four parameters, and a squared distance as the last value."""
    sample = np.random.default_rng(0).random((4000, len(_NOISE_SPACE)))
    values = [_last_value(row) for row in sample.tolist()]
    return CurveProblem(
        name="noise",
        space=_NOISE_SPACE,
        arms=None,
        steps=tuple(range(1, _NOISE_STEPS + 1)),
        costs=(1,) * _NOISE_STEPS,
        curve=_noise_curve,
        best=0.0,
        median=float(np.median(values)),
    )


_TASKSET = [f"taskset-{number}" for number in range(problems.TASKSET_TASKS + problems.TASKSET_OTHER_TASKS)]
FAMILIES: Mapping[str, tuple[str, ...]] = {
    "lcbench": tuple(f"lcbench-{task}" for task in problems.LCBENCH_TASKS),
    "taskset": tuple(_TASKSET[: problems.TASKSET_TASKS]),
    "nb101": ("nb101",),
    "own": tuple(f"own-{name}" for name in own.DEVELOP),
    "lcbench-verdict": tuple(f"lcbench-{task}" for task in problems.LCBENCH_VERDICT_TASKS),
    "taskset-verdict": tuple(_TASKSET[problems.TASKSET_TASKS :]),
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
            return problems.load_lcbench(number, source)
        case "taskset":
            return problems.load_taskset(int(number), source)
        case "space":
            return replace(problems.load_taskset(int(number), source), name=name, arms=None)
        case "noise":
            return _load_noise()
        case "own":
            return own.load(number, own_folder)
    return problems.load_cells(source)
