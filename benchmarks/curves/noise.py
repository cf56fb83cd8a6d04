"""A problem whose values before the last one are pure noise."""

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.curves.problems import Configuration, CurveProblem, Floats
from objectives.parameters import Range, Space

STEPS = 51
_SPACE: Space = {name: Range(0.0, 1.0) for name in "abcd"}


def _last_value(positions: Sequence[Any]) -> float:
    squares = [(position - 0.3 * place - 0.2) ** 2 for place, position in enumerate(positions)]
    return -4.0 * float(sum(squares))


def _curve(configuration: Configuration) -> Floats:
    text = repr(sorted(configuration.items()))
    rng = np.random.default_rng(int(hashlib.md5(text.encode()).hexdigest()[:8], 16))
    last = _last_value([configuration[name] for name in sorted(_SPACE)])
    return np.append(rng.normal(-6.0, 0.7, STEPS - 1), last)


def load() -> CurveProblem:
    """The problem: four parameters, and a squared distance as the last value."""
    sample = np.random.default_rng(0).random((4000, len(_SPACE)))
    values = [_last_value(row) for row in sample.tolist()]
    return CurveProblem(
        name="noise",
        space=_SPACE,
        arms=None,
        steps=tuple(range(1, STEPS + 1)),
        costs=(1,) * STEPS,
        whole_cost=STEPS,
        curve=_curve,
        durations=lambda configuration: np.ones(STEPS),
        best=0.0,
        median=float(np.median(values)),
    )
