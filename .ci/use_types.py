"""A program of a user, which `.ci/package` checks with mypy against the installed wheel."""

from typing import assert_type

from bbkb import Optimizer, Range, Result, tune
from bbkb.strategies import BBKB
from bbkb.strategy import Pick

result = tune(lambda x: x, {"x": Range(0.0, 1.0)}, evaluations=3, direction="minimize")
assert_type(result, Result)
Optimizer({"x": Range(0.0, 1.0)}, "minimize", strategy=BBKB(coverage=0.1))
assert_type(Pick(0), Pick)
