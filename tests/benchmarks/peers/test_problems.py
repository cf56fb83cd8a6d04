"""Functions and tables as problems."""

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.peers.functions import SHAPES, Function
from benchmarks.peers.tables import Recorded, load_table
from objectives.datasets import DataSource
from objectives.objective import ObjectiveError
from objectives.parameters import Ordered

RNG = np.random.default_rng(0)
OPTIMA = {
    "branin": ((9.42478, 2.475),),
    "hartmann6": ((0.20169, 0.150011, 0.476874, 0.275332, 0.311652, 0.6573),),
    "ackley10": ((0.0,) * 10,),
    "rosenbrock8": ((1.0,) * 8,),
    "levy20": ((1.0,) * 20,),
}


@pytest.mark.parametrize("name", SHAPES)
def test_a_function_has_its_published_minimum(name: str) -> None:
    shape = SHAPES[name]
    assert shape.of(np.array(OPTIMA[name])) == pytest.approx(shape.smallest, abs=1e-5)


@pytest.mark.parametrize("name", SHAPES)
def test_no_point_is_below_the_minimum(name: str) -> None:
    shape = SHAPES[name]
    low, high = np.array(shape.low), np.array(shape.high)
    points = low + (high - low) * RNG.uniform(-0.2, 1.2, (5000, len(low)))
    assert shape.of(points).min() >= shape.smallest - 1e-9


@pytest.mark.parametrize("name", [name for name in SHAPES if name != "branin"])
@pytest.mark.parametrize("seed", range(10))
def test_the_shifted_optimum_stays_in_the_space_and_has_no_regret(name: str, seed: int) -> None:
    function, shape = Function(name, seed), SHAPES[name]
    low, high = np.array(shape.low), np.array(shape.high)
    place = (np.array(OPTIMA[name][0]) - low) / (high - low) + function._shift
    assert ((place >= 0) & (place <= 1)).all()
    evaluation = function.evaluate({f"x{i}": float(value) for i, value in enumerate(place)}, RNG)
    assert evaluation.regret == pytest.approx(0.0, abs=1e-5)


def test_the_median_of_all_points_has_a_regret_of_one() -> None:
    function = Function("hartmann6", 3)
    points = np.random.default_rng(1).random((3000, 6))
    regrets = [function.evaluate({f"x{i}": float(v) for i, v in enumerate(row)}, RNG).regret for row in points]
    assert np.median(regrets) == pytest.approx(1.0, abs=0.05)


def test_noise_is_a_hundredth_of_the_unit_and_not_in_the_regret() -> None:
    clean, noisy = Function("ackley10", 0), Function("ackley10", 0, 0.01)
    point = dict.fromkeys(clean.space, 0.3)
    rewards = [noisy.evaluate(point, np.random.default_rng(seed)).reward for seed in range(400)]
    assert np.std(np.array(rewards, float)) == pytest.approx(0.01 * clean._unit, rel=0.15)
    assert noisy.evaluate(point, RNG).regret == clean.evaluate(point, RNG).regret


def test_a_repeat_is_drawn_and_a_missing_one_never() -> None:
    table = Recorded({"x": Ordered((1, 2))}, np.array([[0], [1]]), np.array([[1.0, 2.0, np.nan], [5.0, 5.0, 5.0]]))
    rewards = {table.evaluate({"x": 1}, np.random.default_rng(seed)).reward for seed in range(30)}
    assert rewards == {1.0, 2.0}


def test_a_point_that_was_not_recorded_has_the_value_of_the_nearest_row() -> None:
    space = {"a": Ordered((0, 1)), "b": Ordered((0, 1)), "c": Ordered((0, 1))}
    table = Recorded(
        space, np.array([[0, 0, 0], [1, 1, 1], [1, 0, 1]]), np.array([[1.0], [2.0], [3.0]]), is_whole=False
    )
    assert table.evaluate({"a": 1, "b": 1, "c": 0}, RNG).reward == 2.0
    assert table.evaluate({"a": 0, "b": 0, "c": 1}, RNG).reward == 1.0
    assert table.arms is not None
    assert table.arms.parameters(2) == {"a": 1, "b": 0, "c": 1}


def test_a_table_is_read_from_the_data_folder(tmp_path: Path) -> None:
    folder = tmp_path / "hpobench_mlp"
    folder.mkdir()
    index = np.array([[i, j] for i in range(2) for j in range(3)], np.uint8)
    np.savez(folder / "hpobench_mlp.npz", index=index, car=np.arange(12, dtype=np.float32).reshape(6, 2))
    (folder / "space.json").write_text(json.dumps({"alpha": [0.1, 1.0], "width": [16, 32, 64]}))
    table = load_table("mlp-car", DataSource(tmp_path))
    assert table.evaluate({"alpha": 1.0, "width": 32}, RNG).regret == pytest.approx((10.5 - 8.5) / (10.5 - 5.5))


def test_data_that_are_missing_are_named(tmp_path: Path) -> None:
    with pytest.raises(ObjectiveError, match=r"fcnet/fcnet.npz must be in the data folder"):
        load_table("fcnet-protein", DataSource(tmp_path))
