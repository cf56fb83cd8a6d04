"""Experiments of chemistry and materials science: fourteen data sets of Olympus (Häse et al. 2021;
Hickman et al. 2023).

In four of them, every combination of choices has a recorded result. The results of the others are
those of extra trees that are fitted to the records, with noise of a tenth of the results' standard
deviation. The first of several results is optimized.

Data: `olympus/dataset_<name>.config.json` and `.data.csv` in the folder of the data.
"""

import csv
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from bbkb.objectives.objective import ObjectiveError
from bbkb.objectives.parameters import Choice, Ordered, Parameter, Range, Scalar, Space
from bbkb.objectives.reference import DataSource
from bbkb.objectives.sampling import make_candidates
from bbkb.objectives.space import SearchSpace
from benchmarks.peers.problems import Evaluation, Point
from benchmarks.peers.tables import Recorded
from benchmarks.tables import Floats

_PREFIX = "olympus-"
_LOOKED_UP = ("buchwald_a", "buchwald_e", "perovskites", "mmli_opv")
_EMULATED = (
    *("agnp", "autoam", "colors_bob", "crossed_barrel", "hplc"),
    *("lnp3", "photo_pce10", "snar", "suzuki_i", "suzuki_iii"),
)
EXPERIMENTS = tuple(f"{_PREFIX}{name}" for name in (*_LOOKED_UP, *_EMULATED))
_MIXTURES = ("photo_pce10",)  # only the shares of the parameters in their sum have an effect
_NOISE = 0.1  # standard deviation of the noise, in units of that of the results
_TREES, _LEAF = 60, 2  # the number of trees, and the fewest records of a leaf
_SAMPLE = 2**12


@dataclass(frozen=True, eq=False)
class Emulated:
    """The predictions of `model`. `noise`: its standard deviation."""

    space: Space
    model: Any
    is_mixture: bool
    noise: float
    best: float
    median: float
    arms: None = None
    is_deterministic: bool = False
    several: None = None
    known: dict[tuple[Scalar, ...], float] = field(default_factory=dict)  # predictions, which take milliseconds each

    def evaluate(self, point: Point, rng: np.random.Generator) -> Evaluation:
        key = tuple(point[name] for name in self.space)
        if key not in self.known:
            features = SearchSpace(self.space).candidate(point).features
            self.known[key] = float(self.model.predict(_inputs(features, self.is_mixture))[0])
        worth = self.known[key]
        reward = worth + self.noise * float(rng.standard_normal())
        return Evaluation((reward,), (self.best - worth) / (self.best - self.median))


@cache
def load_experiment(name: str, source: DataSource) -> Recorded | Emulated:
    """The problem `name` of EXPERIMENTS. Raises ObjectiveError if its data are missing."""
    name = name.removeprefix(_PREFIX)
    config = json.loads(_text(f"olympus/dataset_{name}.config.json", source))
    rows = list(csv.reader(_text(f"olympus/dataset_{name}.data.csv", source).splitlines()))
    goal = np.atleast_1d(config["default_goal"])[0]
    parameters = config["parameters"]
    results = np.array([float(row[len(parameters)]) for row in rows]) * (1.0 if goal == "maximize" else -1.0)
    space: dict[str, Parameter] = {}
    columns: dict[str, Sequence[Scalar]] = {}
    for place, parameter in enumerate(parameters):
        written = [row[place] for row in rows]
        is_choice = parameter["type"] == "categorical"
        values: list[Scalar] = [*written] if is_choice and not _is_number(written[0]) else [*map(float, written)]
        columns[parameter["name"]] = values
        space[parameter["name"]] = _parameter(values, is_choice)
    if name in _LOOKED_UP:
        numbers = {values: number for number, values in enumerate(zip(*columns.values(), strict=True))}
        return Recorded(space, results[:, None], lambda point: numbers[tuple(point[name] for name in space)])
    from sklearn.ensemble import ExtraTreesRegressor

    is_mixture = name in _MIXTURES
    if is_mixture:
        space = {name: Range(0.0, 1.0) for name in space}
    inputs = _inputs(SearchSpace(space).rebuild(columns).features, is_mixture)
    model = ExtraTreesRegressor(_TREES, min_samples_leaf=_LEAF, random_state=0).fit(inputs, results)
    drawn = model.predict(_inputs(make_candidates(space, _SAMPLE).features, is_mixture))
    best = max(drawn.max(), model.predict(inputs).max())
    return Emulated(space, model, is_mixture, _NOISE * results.std(), float(best), float(np.median(drawn)))


def _text(name: str, source: DataSource) -> str:
    path = source.file(name)
    if path is None:
        where = source.folder or "none is given"
        raise ObjectiveError(f"{name} must be in the data folder, {where}: name one by --data")
    return path.read_text(encoding="utf-8")


def _is_number(text: str) -> bool:
    return text.replace(".", "", 1).isdigit()


def _parameter(values: Sequence[Any], is_choice: bool) -> Parameter:
    """The parameter with these recorded values; a choice of numbers is ordered."""
    levels = sorted(set(values))
    if not is_choice:
        return Range(levels[0], levels[-1])
    return Choice((*levels,)) if isinstance(levels[0], str) else Ordered((*levels,))


def _inputs(features: Floats, is_mixture: bool) -> Floats:
    """The inputs (n, d) of the trees for features (n, d) in the unit cube."""
    return features / np.maximum(features.sum(axis=1, keepdims=True), 1e-9) if is_mixture else features
