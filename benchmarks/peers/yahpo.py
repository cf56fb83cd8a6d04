"""Surrogates of YAHPO Gym as problems: neural networks in ONNX format that predict accuracies.

`lcbench-3945` is a network on the OpenML task 3945 after its last epoch, with 7 parameters
(`benchmarks.curves.problems`). `rbv2_xgboost-1040` is XGBoost on the task 1040 (RandomBot v2): 14
parameters. Eight of them exist with tree boosters only, and two of these eight with `dart` only.
`rbv2_rpart-1040` is a decision tree with five parameters. Rewards are accuracies, without noise.

Binder, Pfisterer, Bischl 2020 (the data). Needs onnxruntime.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from bbkb.objectives.parameters import Choice, Range, Scalar, Space
from bbkb.objectives.reference import DataSource
from bbkb.objectives.sampling import make_candidates
from benchmarks.curves.problems import LCBENCH_TASKS, CurveProblem, load_lcbench, load_surrogate
from benchmarks.peers.problems import Evaluation, Point, WholeSpace

LCBENCH = tuple(f"lcbench-{task}" for task in LCBENCH_TASKS)


@dataclass(frozen=True, eq=False)
class Curves(WholeSpace):
    """One task of LCBench."""

    curves: CurveProblem  # its learning curves; the last value of each is its result

    @property
    def space(self) -> Space:
        return self.curves.space

    def evaluate(self, point: Point, rng: np.random.Generator) -> Evaluation:
        value = float(self.curves.curve(point)[-1])
        return Evaluation((value,), self.curves.regret(value))


def load_curves(name: str, source: DataSource) -> Curves:
    """The problem `name` of LCBENCH."""
    return Curves(load_lcbench(name.removeprefix("lcbench-"), source))


LEARNER_TASKS = ("1040", "1111", "1468", "1489", "23381", "40496", "40981", "41212")
OTHER_TASKS = (  # of XGBoost, by turns from the surrogate's list, to verify changes of the search
    *("1049", "1068", "1461", "1479", "1494", "1515", "188", "28", "312", "38", "40685", "40975", "40994"),
    *("41146", "41162", "41169", "42", "46", "6", "1056", "1220", "1475", "1486", "1501", "18", "23512"),
    *("300", "37", "40536", "40923", "40982", "41138", "41157", "41165", "4134", "4538", "50"),
)
_LEAST, _MOST = 0.0009118819655545162, 1096.6331584284585  # e⁻⁷ and e⁷
_TREES: dict[str, tuple[str, ...]] = {"booster": ("gbtree", "dart")}
_DART: dict[str, tuple[str, ...]] = {"booster": ("dart",)}
_IMPUTE = Choice(("impute.mean", "impute.median", "impute.hist"))
SPACES: Mapping[str, Space] = {  # choices, then numbers, in the order of the surrogate's inputs
    "rbv2_xgboost": {
        "booster": Choice(("gblinear", "gbtree", "dart")),
        "num.impute.selected.cpo": _IMPUTE,
        "nrounds": Range(7, 2981, log=True, integer=True),
        "eta": Range(_LEAST, 1.0, log=True, when=_TREES),
        "gamma": Range(4.5399929762484854e-05, 7.38905609893065, log=True, when=_TREES),
        "lambda": Range(_LEAST, _MOST, log=True),
        "alpha": Range(_LEAST, _MOST, log=True),
        "subsample": Range(0.1, 1.0),
        "max_depth": Range(1, 15, integer=True, when=_TREES),
        "min_child_weight": Range(2.718281828459045, 148.4131591025766, log=True, when=_TREES),
        "colsample_bytree": Range(0.01, 1.0, when=_TREES),
        "colsample_bylevel": Range(0.01, 1.0, when=_TREES),
        "rate_drop": Range(0.0, 1.0, when=_DART),
        "skip_drop": Range(0.0, 1.0, when=_DART),
    },
    "rbv2_rpart": {
        "num.impute.selected.cpo": _IMPUTE,
        "cp": Range(_LEAST, 1.0, log=True),
        "maxdepth": Range(1, 30, integer=True),
        "minbucket": Range(1, 100, integer=True),
        "minsplit": Range(1, 100, integer=True),
    },
}
LEARNERS = tuple(f"{learner}-{task}" for learner in SPACES for task in LEARNER_TASKS)
OTHER_LEARNERS = tuple(f"rbv2_xgboost-{task}" for task in OTHER_TASKS)
_WHOLE_DATA, _REPETITIONS = 1.0, 10.0  # the last two inputs: the share of the data, and repetitions
_MISSING = "#na#"  # stands for a choice that does not exist
_SAMPLE, _CLIMBERS, _ROUNDS, _CHILDREN = 2**13, 32, 24, 16


@dataclass(frozen=True, eq=False)
class Learner(WholeSpace):
    """The tuning of one learner on one task."""

    surrogate: "Surrogate"
    task: str

    @property
    def space(self) -> Space:
        return self.surrogate.space

    def evaluate(self, point: Point, rng: np.random.Generator) -> Evaluation:
        value = float(self.surrogate.accuracies(self.task, [point])[0])
        best, median = self.surrogate.optimum(self.task)
        return Evaluation((value,), (best - value) / (best - median))


class Surrogate:
    """The neural network of one learner. `session`: an onnxruntime session; `codes`: the numbers of
    the levels of the tasks and choices, by parameter."""

    def __init__(self, session: Any, codes: Mapping[str, Mapping[str, int]], space: Space) -> None:
        self._session, self._codes, self.space = session, codes, space
        self._numbers = [name for name, kind in space.items() if isinstance(kind, Range)]
        self._choices = [name for name in space if name not in self._numbers]

    def accuracies(self, task: str, points: Sequence[Point]) -> np.ndarray[Any, np.dtype[np.float64]]:
        """The accuracies (n,) of n configurations."""
        ends = (_WHOLE_DATA, _REPETITIONS)
        numbers = [[*(_number(point.get(name)) for name in self._numbers), *ends] for point in points]
        number = self._codes["task_id"][task]
        choices = [
            [number, *(self._codes[name][str(point.get(name, _MISSING))] for name in self._choices)] for point in points
        ]
        inputs = {"x_cont": np.array(numbers, np.float32), "x_cat": np.array(choices, np.int32)}
        outputs = np.asarray(self._session.run(None, inputs)[0], np.float64)
        accuracies: np.ndarray[Any, np.dtype[np.float64]] = outputs[:, 0]
        return accuracies

    @cache  # noqa: B019 -- surrogates live as long as the process
    def optimum(self, task: str) -> tuple[float, float]:
        """The best accuracy of a random search with local steps; the median of a sample."""
        sampled = make_candidates(self.space, _SAMPLE, "sobol", 0)
        points = [sampled.parameters(row) for row in range(len(sampled))]
        values, rng = self.accuracies(task, points), np.random.default_rng(0)
        median, top = float(np.median(values)), np.argsort(-values)[:_CLIMBERS]
        points, values = [points[row] for row in top], values[top]
        for number in range(_ROUNDS):
            width = 0.3 * 0.8**number
            moved = [self._moved(point, width, rng) for point in points for _ in range(_CHILDREN)]
            reached = self.accuracies(task, moved).reshape(len(points), _CHILDREN)
            for place, winner in enumerate(reached.argmax(axis=1).tolist()):
                if reached[place, winner] > values[place]:
                    points[place], values[place] = moved[place * _CHILDREN + winner], reached[place, winner]
        return float(values.max()), median

    def _moved(self, point: Point, width: float, rng: np.random.Generator) -> Point:
        """A configuration with the same choices, whose numbers are moved by about `width` of their scale."""
        return {name: _step(self.space[name], value, width, rng) for name, value in point.items()}


def _number(value: Scalar | None) -> float:
    """Return the value of a number; 0 if the parameter does not exist."""
    return float(value) if isinstance(value, int | float) else 0.0


def _step(kind: Any, value: Any, width: float, rng: np.random.Generator) -> Any:
    if not isinstance(kind, Range):
        return value
    low, high, at = np.log((kind.low, kind.high, value)) if kind.log else np.array((kind.low, kind.high, value))
    moved = float(np.clip(at + width * (high - low) * rng.standard_normal(), low, high))
    moved = float(np.clip(np.exp(moved), kind.low, kind.high)) if kind.log else moved
    return round(moved) if kind.integer else moved


def load_learner(name: str, source: DataSource) -> Learner:
    """The problem of this name. Raises the errors of `load_surrogate`."""
    learner, _, task = name.partition("-")
    return Learner(_surrogate(learner, source), task)


@cache
def _surrogate(learner: str, source: DataSource) -> Surrogate:
    return Surrogate(*load_surrogate(learner, source), SPACES[learner])
