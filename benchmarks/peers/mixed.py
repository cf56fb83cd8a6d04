"""Made-up spaces of choices and conditional parameters, in which one level hides the best
configurations.

| name | space | what is difficult |
| --- | --- | --- |
| `failcat` | a choice of four, two numbers | one level always fails; the best values of another are in a small region |
| `plateau` | a choice of three, three numbers | two levels have wide plateaus, the third one a narrow, better hill |
| `optimisers` | a choice of four optimisers, three numbers for each | the best optimiser is the worst one on average |
| `deep` | as `optimisers`, and two levels of conditions | the best branch exists in an eighth of the space |

In each level, values fall from its peak with the squared distance, as exp(−r²/2s²), to its floor.
The seed shuffles the levels and shifts the peaks. The second-best level ends at a regret that is
above 0 by a fifth to a third of (best − median).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from benchmarks.peers.problems import Evaluation, Group, Point, WholeSpace
from objectives.parameters import Choice, Range, Space

NAMES = ("failcat", "plateau", "optimisers", "deep")
FAILURE = 2.0  # the regret of an evaluation that fails
_STREAM, _MEDIAN_STREAM, _MEDIAN_OF = 21, 22, 4096
_OPTIMISERS = ("sgd", "adam", "rmsprop", "adagrad")
_OWN = ("rate", "decay", "momentum")  # parameters of each optimiser


@dataclass(frozen=True)
class Level:
    """Values of one level of the choice."""

    peak: float
    floor: float
    width: float  # s of its hill, whose `peak` is above the `floor`
    fails: bool = False


_LEVELS: Mapping[str, tuple[Level, ...]] = {  # the best one first
    "failcat": (Level(1.0, 0.2, 0.2), Level(0.8, 0.4, 0.5), Level(0.5, 0.2, 0.5), Level(0.0, 0.0, 1.0, fails=True)),
    "plateau": (Level(1.0, 0.1, 0.25), Level(0.8, 0.6, 1.0), Level(0.75, 0.5, 1.0)),
    "optimisers": (Level(1.0, 0.1, 0.25), Level(0.8, 0.4, 0.5), Level(0.7, 0.4, 0.5), Level(0.6, 0.3, 0.5)),
    "deep": (Level(1.0, 0.1, 0.3), Level(0.8, 0.4, 0.5), Level(0.7, 0.4, 0.5), Level(0.6, 0.3, 0.5)),
}


@dataclass(frozen=True)
class Mixed(WholeSpace):
    """The problem `name` of NAMES with the peaks of `seed`."""

    name: str
    seed: int

    @property
    def group(self) -> Group:
        return Group.MIXED

    @cached_property
    def space(self) -> Space:
        if self.name in ("failcat", "plateau"):
            numbers = ("x", "y", "z")[: 2 if self.name == "failcat" else 3]
            return {"kind": Choice(self.kinds), **{name: Range(0.0, 1.0) for name in numbers}}
        nested: dict[str, Choice | Range] = {"optimiser": Choice(self.kinds)}
        for kind in self.kinds:
            branch: dict[str, tuple[str, ...]] = {"optimiser": (kind,)}
            if self.name == "deep":
                nested[f"{kind}_schedule"] = Choice(("constant", "cosine"), when=branch)
                branch = {f"{kind}_schedule": ("cosine",)}
            nested |= {f"{kind}_{name}": Range(0.0, 1.0, when=branch) for name in _OWN}
        return nested

    @cached_property
    def kinds(self) -> tuple[str, ...]:
        """The levels of the choice."""
        return _OPTIMISERS[: len(_LEVELS[self.name])] if self.name != "failcat" else ("a", "b", "c", "d")

    @cached_property
    def levels(self) -> Mapping[str, Level]:
        """What each of `kinds` is."""
        order = np.random.default_rng([self.seed, _STREAM]).permutation(len(self.kinds))
        return {kind: _LEVELS[self.name][place] for kind, place in zip(self.kinds, order.tolist(), strict=True)}

    def evaluate(self, point: Point, rng: np.random.Generator) -> Evaluation:
        """Evaluate a point; the reward is None where the evaluation fails."""
        kind = str(point["kind" if "kind" in self.space else "optimiser"])
        if self.levels[kind].fails:
            return Evaluation(None, 0.0, FAILURE)
        value = self._value(kind, point)
        return Evaluation(value, value, (1.0 - value) / self._unit)

    def _value(self, kind: str, point: Point) -> float:
        level, numbers = self.levels[kind], [value for value in point.values() if isinstance(value, float)]
        if not numbers:
            return level.floor
        squared = float(np.sum((np.array(numbers) - self._peaks[kind][: len(numbers)]) ** 2))
        return level.floor + (level.peak - level.floor) * float(np.exp(-0.5 * squared / level.width**2))

    @cached_property
    def _peaks(self) -> Mapping[str, np.ndarray[tuple[int], np.dtype[np.float64]]]:
        """Where the hill of each level is."""
        rng = np.random.default_rng([self.seed, _STREAM, 1])
        return {kind: rng.uniform(0.15, 0.85, 3) for kind in self.kinds}

    @cached_property
    def _unit(self) -> float:
        """The unit of the regret: best − median of the points that do not fail."""
        rng = np.random.default_rng([self.seed, _MEDIAN_STREAM])
        kinds = [kind for kind in self.kinds if not self.levels[kind].fails]
        size = 2 if self.name == "failcat" else 3
        positions = rng.random((_MEDIAN_OF, size))
        names = [f"x{place}" for place in range(size)]
        points = [dict(zip(names, row.tolist(), strict=True)) for row in positions]
        halved = [{} if self.name == "deep" and place % 2 else point for place, point in enumerate(points)]
        values = [self._value(kinds[(place // 2) % len(kinds)], point) for place, point in enumerate(halved)]
        return 1.0 - float(np.median(values))
