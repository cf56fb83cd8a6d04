"""Odd but common problems: noise, outliers, crashes, plateaus, optima in corners, forty parameters of
which few matter, lattices, twelve decades, choices of two hundred levels, trees of conditions.

Each function is minimized, and its smallest value is 0. The seed draws the optimum. `odd-noisy`, the
problems with noise, are a group of their own.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np

from bbkb.objectives.parameters import Choice, Range, Scalar, Space
from bbkb.objectives.sampling import make_candidates
from benchmarks.peers.functions import SHAPES, branin, hartmann
from benchmarks.peers.problems import Evaluation, Point, WholeSpace, numbered, vector
from benchmarks.tables import Floats

_PREFIX = "odd-"
_SAMPLE = 2**11  # drawn for the median
_STREAM = 77

Rng = np.random.Generator
Noise = Callable[[Point, float, Rng], float]
Fails = Callable[[Point, Rng], bool]


@dataclass(frozen=True, eq=False)
class Odd(WholeSpace):
    """`of` is minimized, and its smallest value is 0."""

    space: Space
    of: Callable[[Point], float]
    noise: Noise | None = None  # added to a value
    fails: Fails | None = None

    @property
    def is_deterministic(self) -> bool:
        return self.noise is None

    @cached_property
    def _unit(self) -> float:
        """The median of random points."""
        drawn = make_candidates(self.space, _SAMPLE)
        return float(np.median([self.of(drawn.parameters(row)) for row in range(len(drawn))]))

    def evaluate(self, point: Point, rng: Rng) -> Evaluation:
        """Evaluate a point. The reward is −f."""
        value = self.of(point)
        regret = value / self._unit
        if self.fails is not None and self.fails(point, rng):
            return Evaluation(None, regret)
        noise = 0.0 if self.noise is None else self.noise(point, value, rng)
        return Evaluation((-value - noise,), regret)


Vector = Callable[[Floats], float]  # a function of the numbers x0, x1, … of a point


def _box(dimension: int, low: float = 0.0, high: float = 1.0, integer: bool = False) -> Space:
    return numbered([Range(low, high, integer=integer)] * dimension)


def _numeric(space: Space, of: Vector, noise: Noise | None = None, fails: Fails | None = None) -> Odd:
    return Odd(space, lambda point: of(vector(point, len(space))), noise, fails)


def _bowl(center: Floats, weights: Floats | float = 1.0) -> Vector:
    return lambda x: float((weights * (x - center) ** 2).sum())


def _gaussian(deviation: float) -> Noise:
    return lambda point, value, rng: deviation * rng.standard_normal()


_HARTMANN3_A = np.array([[3, 10, 30], [0.1, 10, 35], [3, 10, 30], [0.1, 10, 35]])
_HARTMANN3_P = 1e-4 * np.array([[3689, 1170, 2673], [4699, 4387, 7470], [1091, 8732, 5547], [381, 5743, 8828]])


def _hartmann3(x: Floats) -> float:
    return float(hartmann(x[None], _HARTMANN3_A, _HARTMANN3_P)[0]) + 3.86278214782076


def _hartmann6(x: Floats) -> float:
    return float(hartmann(x[None])[0]) - SHAPES["hartmann6"].smallest


def _branin(x: Floats) -> float:
    return float(branin(15.0 * x[None] - (5.0, 0.0))[0]) - SHAPES["branin"].smallest


def _shifted(of: Vector, dimension: int, noise: Noise, rng: Rng) -> Odd:
    shift = rng.uniform(-0.1, 0.1, dimension)
    return _numeric(_box(dimension), lambda x: of(np.clip(x + shift, 0.0, 1.0)), noise)


def _bowl4(noise: Noise, rng: Rng) -> Odd:
    return _numeric(_box(4), _bowl(rng.uniform(0.2, 0.8, 4)), noise)


def _forrester(rng: Rng) -> Odd:
    shift = rng.uniform(-0.6, 0.6) - 2.0

    def of(x: Floats) -> float:
        z = 6.0 * float(x[0]) + shift
        return z**2 * math.sin(2.0 * z) + 6.020740055767083

    return _numeric(_box(1), of)


def _gramacy_and_lee(rng: Rng) -> Odd:
    center = rng.uniform(1.0, 1.1)

    def waves(x: Floats) -> Floats:
        value: Floats = np.sin(10 * np.pi * x) / (2 * x) + (x - center) ** 4
        return value

    smallest = float(waves(np.linspace(0.5, 2.5, 200001)).min())
    return _numeric(_box(1, 0.5, 2.5), lambda x: float(waves(x)[0]) - smallest)


def _learning_rate(rng: Rng) -> Odd:
    best = rng.uniform(-6.0, -1.0)
    return _numeric({"x0": Range(1e-7, 1.0, log=True)}, lambda x: abs(math.log10(x[0]) - best))


def _few_of_forty(of: Vector, dimension: int, rng: Rng) -> Odd:
    which = rng.choice(40, dimension, replace=False)
    return _numeric(_box(40), lambda x: of(x[which]))


def _two_hundred_levels(centers: Floats, rng: Rng) -> Odd:
    """Each level adds an offset, and has its center of x."""
    offsets = rng.gamma(1.0, 1.0, 200)
    offsets -= offsets.min()
    levels = {f"level-{number}": number for number in range(200)}

    def of(point: Point) -> float:
        level = levels[str(point["level"])]
        return float(offsets[level] + 4.0 * (vector(point, 1)[0] - centers[level]) ** 2)

    return Odd({"level": Choice((*levels,)), **_box(1)}, of)


_TREE: Space = {
    "model": Choice(("svm", "net", "forest")),
    "c": Range(1e-3, 1e3, log=True, when={"model": ("svm",)}),
    "kernel": Choice(("rbf", "poly", "linear"), when={"model": ("svm",)}),
    "gamma": Range(1e-4, 1e2, log=True, when={"kernel": ("rbf", "poly")}),
    "degree": Range(2, 5, integer=True, when={"kernel": ("poly",)}),
    "optimizer": Choice(("sgd", "adam"), when={"model": ("net",)}),
    "lr": Range(1e-5, 1.0, log=True, when={"model": ("net",)}),
    "layers": Range(1, 4, integer=True, when={"model": ("net",)}),
    "momentum": Range(0.0, 0.99, when={"optimizer": ("sgd",)}),
    "nesterov": Choice((True, False), when={"optimizer": ("sgd",)}),
    "beta2": Range(0.9, 0.9999, when={"optimizer": ("adam",)}),
    "trees": Range(10, 500, log=True, integer=True, when={"model": ("forest",)}),
    "depth": Range(2, 20, integer=True, when={"model": ("forest",)}),
    "bootstrap": Choice((True, False), when={"model": ("forest",)}),
    "share": Range(0.1, 1.0, when={"bootstrap": (True,)}),
}


def _tree(rng: Rng) -> Odd:
    """Three models with their own parameters, some of which have their own again."""
    offsets: dict[Scalar, float] = {}
    for names, values in (
        (("svm", "net", "forest"), (0.0, 0.05, 0.1)),
        (("rbf", "poly", "linear"), (0.0, 0.05, 0.15)),
        (("sgd", "adam"), (0.0, 0.04)),
    ):
        offsets.update(zip(names, rng.permutation(values).tolist(), strict=True))
    c, gamma, lr, momentum = rng.uniform((-1.0, -3.0, -3.5, 0.5), (2.0, 1.0, -1.0, 0.95)).tolist()
    depth = int(rng.integers(6, 17))

    def of(point: Point) -> float:
        x = {name: float(value) for name, value in point.items() if isinstance(value, bool | int | float)}
        log = {name: math.log10(x[name]) for name in ("c", "gamma", "lr", "trees") if name in x}
        value = sum(offsets[level] for level in point.values() if isinstance(level, str))
        if "c" in x:
            value += 0.02 * (log["c"] - c) ** 2
        if "gamma" in x:
            value += 0.03 * (log["gamma"] - gamma + 0.3 * (log["c"] - c)) ** 2
        if "degree" in x:
            value += 0.02 * abs(x["degree"] - 3.0)
        if "lr" in x:
            value += 0.05 * (log["lr"] - lr) ** 2 + 0.01 * (x["layers"] - 2.0) ** 2
        if "momentum" in x:
            value += 0.2 * (x["momentum"] - momentum) ** 2 + 0.01 * x["nesterov"]
        if "beta2" in x:
            value += 2.0 * (x["beta2"] - 0.99) ** 2
        if "trees" in x:
            value += 0.017 * (math.log10(500.0) - log["trees"]) + 0.002 * (x["depth"] - depth) ** 2
            value += 0.01 * (1.0 - x["bootstrap"])
        if "share" in x:
            value += 0.05 * (x["share"] - 0.7) ** 2
        return value

    return Odd(_TREE, of)


def _plateau(dimension: int, rng: Rng) -> Odd:
    """Nine tenths of the space have the same value."""
    center = rng.uniform(0.25, 0.75, dimension)
    radius = float(np.quantile(np.linalg.norm(rng.random((20000, dimension)) - center, axis=1), 0.1))
    return _numeric(_box(dimension), lambda x: min(1.0, float(np.linalg.norm(x - center)) / radius))


def _failing_half_space(rng: Rng) -> Odd:
    """A fifth of the space fails; the optimum is close to its edge."""
    normal = rng.standard_normal(4)
    normal /= np.linalg.norm(normal)
    points = rng.random((20000, 4))
    edge = float(np.quantile(points @ normal, 0.8))
    inside = points[np.all(np.abs(points - 0.5) < 0.3, axis=1)]
    center = inside[np.abs(inside @ normal - edge + 0.02).argmin()]
    return _numeric(_box(4), _bowl(center), fails=lambda point, rng: bool(vector(point, 4) @ normal > edge))


def _failing_at_random(rng: Rng) -> Odd:
    of = _bowl(rng.uniform(0.2, 0.8, 4), np.array([1.0, 2.0, 4.0, 8.0]))
    return _numeric(_box(4), of, fails=lambda point, rng: rng.random() < 0.2)


def _failing_level(rng: Rng) -> Odd:
    """The second best of five levels fails."""
    levels: list[Scalar] = rng.permutation(list("abcde")).tolist()
    of = _bowl(rng.uniform(0.2, 0.8, 3))

    def with_level(point: Point) -> float:
        return 0.1 * levels.index(point["level"]) + of(vector(point, 3))

    space: Space = {"level": Choice(("a", "b", "c", "d", "e")), **_box(3)}
    return Odd(space, with_level, fails=lambda point, rng: point["level"] == levels[1])


def _lattice(is_rough: bool, rng: Rng) -> Odd:
    center, weights = rng.integers(2, 19, 5).astype(np.float64), np.arange(1.0, 6.0)

    def rough(x: Floats) -> float:
        return float((weights * np.abs(x - center)).sum() + 6.0 * np.count_nonzero((x - center) % 3))

    return _numeric(_box(5, 0, 20, integer=True), rough if is_rough else _bowl(center, weights))


def _twelve_decades(of: Callable[[float], float], rng: Rng) -> Odd:
    """`of` the number of decades above the lower bound, where the optimum is."""
    center = rng.uniform(0.2, 0.8)
    space: Space = {"x0": Range(1e-12, 1.0, log=True), "x1": Range(0.0, 1.0)}
    return _numeric(space, lambda x: of(math.log10(x[0]) + 12.0) + float(x[1] - center) ** 2)


def _cone(center: float, dimension: int, rng: Rng) -> Odd:
    weights = np.linspace(1.0, 2.0, dimension)
    return _numeric(_box(dimension), lambda x: float(np.linalg.norm(weights * (x - center))))


def _weighted_bowl(is_corner: bool, dimension: int, rng: Rng) -> Odd:
    center = rng.integers(0, 2, dimension).astype(np.float64) if is_corner else rng.uniform(0.2, 0.8, dimension)
    return _numeric(_box(dimension), _bowl(center, np.linspace(1.0, 2.0, dimension)))


def _noisy_grid(rng: Rng) -> Odd:
    center = rng.integers(2, 8, 3)
    of = _bowl(center / 9.0)
    return _numeric(_box(3, 0, 9, integer=True), lambda x: of(x / 9.0), _gaussian(0.5))


_Maker = Callable[[Rng], Odd]
_NOISY: Mapping[str, _Maker] = {
    "noisy-hartmann3": partial(_shifted, _hartmann3, 3, _gaussian(1.93)),
    "noisy-branin": partial(_shifted, _branin, 2, _gaussian(150.0)),
    "noisy-hartmann6": partial(_shifted, _hartmann6, 6, _gaussian(0.33)),
    "noisy-bowl": partial(_bowl4, _gaussian(0.5)),
    "noisy-grid": _noisy_grid,
    "noise-by-place": partial(
        _shifted, _hartmann3, 3, lambda point, value, rng: vector(point, 1)[0] * rng.standard_normal()
    ),
    "noise-by-value": partial(_bowl4, lambda point, value, rng: 0.5 * value * rng.standard_normal()),
    "heavy-tails": partial(_shifted, _hartmann3, 3, lambda point, value, rng: 0.1 * rng.standard_t(1.5)),
    "outliers": partial(_bowl4, lambda point, value, rng: rng.exponential(100.0) if rng.random() < 0.1 else 0.0),
}
_EXACT: Mapping[str, _Maker] = {
    "forrester": _forrester,
    "gramacy-and-lee": _gramacy_and_lee,
    "learning-rate": _learning_rate,
    "four-of-forty": lambda rng: _few_of_forty(_bowl(rng.uniform(0.15, 0.85, 4), np.array([4, 2, 1, 1])), 4, rng),
    "three-of-forty": partial(_few_of_forty, _hartmann3, 3),
    "two-hundred-levels": partial(_two_hundred_levels, np.full(200, 0.5)),
    "two-hundred-centers": lambda rng: _two_hundred_levels(rng.uniform(0.1, 0.9, 200), rng),
    "tree": _tree,
    "plateau-2": partial(_plateau, 2),
    "plateau-4": partial(_plateau, 4),
    "failing-half-space": _failing_half_space,
    "failing-at-random": _failing_at_random,
    "failing-level": _failing_level,
    "lattice": partial(_lattice, False),
    "rough-lattice": partial(_lattice, True),
    "twelve-decades": partial(_twelve_decades, lambda decades: decades / 12.0),
    "twelve-decades-cliff": partial(_twelve_decades, lambda decades: 0.05 * decades if decades <= 2.0 else 1.0),
    **{f"corner-{dimension}": partial(_cone, 0.0, dimension) for dimension in (5, 10)},
    **{f"center-{dimension}": partial(_cone, 0.5, dimension) for dimension in (5, 10)},
    **{f"any-corner-{dimension}": partial(_weighted_bowl, True, dimension) for dimension in (5, 10)},
    **{f"off-center-{dimension}": partial(_weighted_bowl, False, dimension) for dimension in (5, 10)},
}
NOISY = tuple(f"{_PREFIX}{name}" for name in _NOISY)
PROBLEMS = (*NOISY, *(f"{_PREFIX}{name}" for name in _EXACT))


def load_odd(name: str, seed: int) -> Odd:
    """The problem `name` of PROBLEMS."""
    makers = {**_NOISY, **_EXACT}
    return makers[name.removeprefix(_PREFIX)](np.random.default_rng([seed, _STREAM]))
