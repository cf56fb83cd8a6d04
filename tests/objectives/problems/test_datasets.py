"""The sources of data (a folder, scikit-learn, an explicit download), published tables, functions with a formula."""

import gzip
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bbkb.objectives.objective import ObjectiveError, Report
from bbkb.objectives.problems import datasets
from bbkb.objectives.problems.benchmark_tables import FcNet, HpobenchMlp, NasBench101, NasBench201
from bbkb.objectives.problems.cells import Cell, Encoding
from bbkb.objectives.problems.datasets import Regression, load_abalone, load_cadata, load_digits, load_mnist
from bbkb.objectives.problems.synthetic import Abalone, Branin, Cadata, Sine, branin, sine
from bbkb.objectives.problems.training.softmax import SoftmaxRegression
from bbkb.objectives.reference import DataSource
from bbkb.objectives.sampling import make_candidates
from tests.objectives.recorded_files import configurations, write_tables

LOADERS = {"mnist/mnist.npz": load_mnist, "abalone/abalone.csv": load_abalone, "cadata/cal_housing.csv.gz": load_cadata}
ABALONE = """sex,length,diameter,height,whole_weight,shucked_weight,viscera_weight,shell_weight,rings
M,0.455,0.365,0.095,0.514,0.2245,0.101,0.15,15
F,0.53,0.42,0.135,0.677,0.2565,0.1415,0.21,9
I,0.33,0.255,0.08,0.205,0.0895,0.0395,0.055,7
"""
HOUSING = """longitude,latitude,housing_median_age,total_rooms,total_bedrooms,population,households,median_income,value
-122.23,37.88,41,880,129,322,126,8.3252,452600
-122.22,37.86,21,7099,1106,2401,1138,8.3014,358500
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A tiny data folder of the documented layout."""
    for name in LOADERS:
        (tmp_path / name).parent.mkdir()
    (tmp_path / "abalone/abalone.csv").write_text(ABALONE)
    (tmp_path / "cadata/cal_housing.csv.gz").write_bytes(gzip.compress(HOUSING.encode()))
    images = np.arange(3 * 784, dtype=np.uint64).astype(np.uint8).reshape(3, 28, 28)
    np.savez(tmp_path / "mnist/mnist.npz", x_train=images, y_train=np.array([5, 0, 4], np.uint8))
    return tmp_path


@pytest.mark.parametrize("load", LOADERS.values())
def test_missing_data_folder_is_an_error_and_no_other_data_are_used(
    load: Callable[..., object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BBKB_DATA", str(tmp_path / "mistyped"))
    with pytest.raises(ObjectiveError, match=r"must name a folder, and there is none at .*mistyped: correct the path"):
        load(DataSource.find(may_download=True))
    with pytest.raises(ObjectiveError, match="must name a folder"):
        SoftmaxRegression(dataset="auto").load(DataSource.find())


def test_data_folder_takes_precedence_over_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("BBKB_DATA", "/somewhere")
    assert DataSource.find() == DataSource(Path("/somewhere"))
    assert DataSource.find(tmp_path, may_download=True) == DataSource(tmp_path, may_download=True)
    monkeypatch.delenv("BBKB_DATA")
    assert DataSource.find() == DataSource(None)


def test_data_folder_files_are_read(folder: Path) -> None:
    source = DataSource(folder)
    abalone, cadata, mnist = load_abalone(source), load_cadata(source), load_mnist(source)
    np.testing.assert_array_equal(abalone.features[:, :2], [[1, 0.455], [2, 0.53], [3, 0.33]])
    np.testing.assert_array_equal(abalone.target, [15, 9, 7])
    assert abalone.names[0] == "sex"
    assert cadata.features.shape == (2, 8)
    np.testing.assert_array_equal(cadata.target, [452600, 358500])
    assert mnist.pixels.shape == (3, 784)
    assert list(mnist.labels) == [5, 0, 4]
    for read in (abalone, cadata, mnist):
        assert str(folder) in read.source


def test_real_data_have_their_published_shape(source: DataSource) -> None:
    """With the data folder the published sizes and means, without it the bundled digits'."""
    assert load_digits().pixels.shape == (1797, 64)
    assert load_digits().pixels.max() == load_digits().brightest
    if source.file("abalone/abalone.csv"):
        assert load_abalone(source).features.shape == (4177, 8)
        assert load_abalone(source).target.mean() == pytest.approx(9.9337, abs=1e-4)
    if source.file("cadata/cal_housing.csv.gz"):
        assert load_cadata(source).features.shape == (20640, 8)
        assert load_cadata(source).target.mean() == pytest.approx(206855.817, abs=1e-3)
    if source.file("mnist/mnist.npz"):
        assert np.bincount(load_mnist(source).labels)[:3].tolist() == [5923, 6742, 5958]


@pytest.mark.parametrize("name", LOADERS)
def test_missing_data_are_reported_with_every_remedy(name: str, tmp_path: Path) -> None:
    for source, place in ((DataSource(tmp_path), str(tmp_path / name)), (DataSource(), "no data folder is given")):
        with pytest.raises(ObjectiveError) as caught:
            LOADERS[name](source)
        for word in (place, name, "BBKB_DATA", "`data.folder`", "`data.download: true`"):
            assert word in str(caught.value)


@pytest.mark.parametrize("name", LOADERS)
def test_damaged_file_is_named(name: str, folder: Path) -> None:
    (folder / name).write_bytes(b"PK\x03\x04 not what it should be")
    with pytest.raises(ObjectiveError, match=f"{name} is not a readable copy"):
        LOADERS[name](DataSource(folder))


def test_failed_download_is_an_objective_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def raise_no_route(name: str) -> None:
        raise OSError("no route to host")

    monkeypatch.setattr(datasets, "_fetch_openml", raise_no_route)
    with pytest.raises(ObjectiveError, match=r"could not be downloaded: OSError\('no route to host'\).*BBKB_DATA"):
        load_mnist(DataSource(may_download=True))


def test_downloads_have_the_same_values_as_the_folders_files(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    on_disk = DataSource(folder)
    raw = load_cadata(on_disk)
    longitude, latitude, age, rooms, bedrooms, population, households, income = raw.features.T
    per_household = [count / households for count in (rooms, bedrooms, population)]
    ratios = np.column_stack([income, age, *per_household[:2], population, per_household[2], latitude, longitude])
    housing = SimpleNamespace(data=ratios, target=raw.target / 1e5)
    abalone = SimpleNamespace(  # OpenML's own order of the sexes, and its classes as text
        data=np.column_stack([[2.0, 0.0, 1.0], load_abalone(on_disk).features[:, 1:]]),
        target=np.array(["15", "9", "7"], dtype=object),
        categories={"Sex": ["F", "I", "M"]},
        feature_names=["Sex", *load_abalone(on_disk).names[1:]],
    )
    mnist = load_mnist(on_disk)
    images = SimpleNamespace(data=mnist.pixels.astype(float), target=mnist.labels.astype(str).astype(object))
    monkeypatch.setattr(datasets, "_fetch_housing", lambda: housing)
    monkeypatch.setattr(datasets, "_fetch_openml", {"abalone": abalone, "mnist_784": images}.__getitem__)
    online = DataSource(may_download=True)
    for load in (load_abalone, load_cadata):
        np.testing.assert_allclose(load(online).features, load(on_disk).features, rtol=1e-12)
        np.testing.assert_array_equal(load(online).target, load(on_disk).target)
    np.testing.assert_array_equal(load_mnist(online).pixels, mnist.pixels)
    np.testing.assert_array_equal(load_mnist(online).labels, mnist.labels)


GRIDS: dict[str, Any] = {"nasbench201": NasBench201(), "fcnet": FcNet(), "hpobench_mlp": HpobenchMlp()}


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("tables")
    write_tables(root)
    return root


@pytest.mark.parametrize("name", GRIDS)
def test_configuration_has_its_own_row(name: str, tables: Path, silent: Report) -> None:
    options = GRIDS[name]
    table = options.load(DataSource(tables))
    candidates = configurations(options.default_space())
    assert len(candidates) == len(table.target)
    for arm in (0, 1, 777, len(candidates) - 1):
        evaluation = table.evaluate(candidates[arm], 3, silent)
        assert evaluation.metrics == {"noise_free": arm}
        assert abs(evaluation.value - arm) == 0.5
    assert table.optimum(maximize=True) == len(candidates) - 1
    assert table.optimum(maximize=False) == 0


def test_seed_draws_the_repeat_and_the_data_set_is_a_column(tables: Path, silent: Report) -> None:
    table = NasBench201().load(DataSource(tables))
    cell = configurations(NasBench201().default_space())[9]
    assert {table.evaluate(cell, seed, silent).value for seed in range(20)} == {8.5, 9.5}
    assert NasBench201(dataset="cifar100").load(DataSource(tables)).optimum(maximize=False) == 1000
    with pytest.raises(ValueError, match=r"op0 must be one of none, skip_connect.*got 'conv'"):
        table.evaluate({"op0": "conv"}, 0, silent)


def test_cells_have_their_own_accuracy_and_duration(tables: Path, silent: Report) -> None:
    table = NasBench101(operations="all").load(DataSource(tables))
    candidates = table.candidates()
    assert len(candidates) == 40
    evaluation = table.evaluate(candidates.parameters(7), 0, silent)
    assert evaluation.value == np.linspace(0.1, 0.9, 41).astype(np.float32)[7]
    assert evaluation.metrics["seconds"] == np.linspace(300, 500, 41).astype(np.float32)[7]
    assert Cell.parse(candidates.parameters(7)["cell"]).vertices == 6
    assert candidates.parameter_of.tolist()[15:] == [15, 15, 15, 16, 16, 16, 17, 17, 17, 18, 18, 18]


def test_papers_operations_exclude_cells_with_a_projection(tables: Path) -> None:
    table = NasBench101().load(DataSource(tables))
    assert 0 < len(table.candidates()) < 40
    assert not any("conv1x1" in cell for cell in table.columns["cell"])


def test_edge_types_give_different_features(tables: Path) -> None:
    first, second = (NasBench101(encoding=encoding).load(DataSource(tables)).features for encoding in Encoding)
    assert first.shape != second.shape


@pytest.mark.parametrize("options", [*GRIDS.values(), NasBench101()])
def test_missing_file_is_named_with_the_remedy(options: Any, tmp_path: Path) -> None:
    with pytest.raises(ObjectiveError, match=r"\.npz must be in the data folder, and none is given.*BBKB_DATA"):
        options.load(DataSource())
    with pytest.raises(ObjectiveError, match=rf"must be in the data folder, {tmp_path}"):
        options.load(DataSource(tmp_path))


def test_damaged_table_and_table_with_holes_are_rejected(tmp_path: Path) -> None:
    file = tmp_path / "fcnet" / "fcnet.npz"
    file.parent.mkdir()
    file.write_bytes(b"PK nothing")
    with pytest.raises(ObjectiveError, match=r"fcnet\.npz is not a readable table of this benchmark.*replace it"):
        FcNet().load(DataSource(tmp_path))
    np.savez(file, index=np.zeros((1, 9), np.uint8), protein_structure=np.ones((1, 4)))
    with pytest.raises(ObjectiveError, match="62208 different configurations"):
        FcNet().load(DataSource(tmp_path))


@pytest.mark.parametrize("objective", [Sine(noise_std=0.0), Branin(noise_std=0.0)])
def test_optimum_is_the_best_of_a_fine_grid(objective: Sine | Branin, silent: Report) -> None:
    space = objective.default_space()
    candidates = make_candidates(space, 160_000 if len(space) == 2 else 10_001, "grid")
    # every 7th arm is fine enough, and both ends of the grid are kept
    arms = {*range(0, len(candidates), 7), 0, len(candidates) - 1}
    values = [objective.evaluate(candidates.parameters(arm), 0, silent).value for arm in arms]
    assert max(values) <= objective.optimum(maximize=True) <= max(values) + 1e-3
    assert min(values) - 1e-3 <= objective.optimum(maximize=False) <= min(values)


def test_branin_is_the_classical_function_scaled() -> None:
    """The classical minimum 0.397887 is attained at three points; the scaled function is (54.81 −
    classical) / 51.95."""
    for u, v in ((-np.pi, 12.275), (np.pi, 2.275), (9.42478, 2.475)):
        assert 54.81 - 51.95 * branin((u + 5) / 15, v / 15) == pytest.approx(0.397887, abs=1e-5)


def test_branin_has_mean_zero_and_variance_one_over_the_square() -> None:
    side = (np.arange(200) + 0.5) / 200
    values = np.array([branin(x, y) for x in side for y in side])
    assert abs(values.mean()) < 0.01
    assert abs(values.std() - 1) < 0.02


def test_sine_has_the_formula_of_the_paper() -> None:
    assert sine(0.0) == 1.0
    assert sine(np.pi) == pytest.approx(-1 + 0.1 * np.pi)


@pytest.mark.parametrize("objective", [Sine(noise_std=0.5), Branin(noise_std=0.5)])
def test_noise_has_the_requested_deviation(objective: Sine | Branin, silent: Report) -> None:
    parameters = {"x": 0.3, "y": 0.4}
    evaluations = [objective.evaluate(parameters, seed, silent) for seed in range(2000)]
    noise = np.array([evaluation.value - evaluation.metrics["noise_free"] for evaluation in evaluations])
    assert abs(noise.mean()) < 5 * 0.5 / np.sqrt(2000)
    assert abs(noise.std() - 0.5) < 0.05


def test_expensive_function_sleeps(monkeypatch: pytest.MonkeyPatch, silent: Report) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    Sine(seconds=3.0).evaluate({"x": 1.0}, 0, silent)
    Sine().evaluate({"x": 1.0}, 0, silent)
    assert slept == [3.0]


def test_missing_coordinate_is_named(silent: Report) -> None:
    with pytest.raises(ValueError, match="the space must have x and y, got x, z"):
        Branin().evaluate({"x": 0.1, "z": 0.2}, 0, silent)


def test_data_set_is_standardized_and_its_target_scaled_to_the_unit_interval(
    monkeypatch: pytest.MonkeyPatch, source: DataSource, silent: Report
) -> None:
    """Both named problems on the real data if the folder exists, else on a stand-in of the same
    shape."""
    if source.file("abalone/abalone.csv") is None:
        rng = np.random.default_rng(0)
        names = tuple("abcdefgh")
        stand_in = Regression(names, rng.random((50, 8)), rng.random(50) * 28 + 1, "a stand-in")
        monkeypatch.setattr("bbkb.objectives.problems.synthetic.load_abalone", lambda source: stand_in)
        monkeypatch.setattr("bbkb.objectives.problems.synthetic.load_cadata", lambda source: stand_in)
    for options in (Abalone(), Cadata()):
        table = options.load(source)
        assert table.features.shape[1] == 8
        np.testing.assert_allclose(table.features.mean(axis=0), 0, atol=1e-9)
        np.testing.assert_allclose(table.features.std(axis=0), 1)
        assert (table.optimum(maximize=False), table.optimum(maximize=True)) == (0, 1)
        best = int(table.target[:, 0].argmax())
        evaluation = table.evaluate(table.candidates().parameters(best), 0, silent)
        assert 0 < abs(evaluation.value - 1) < 0.1
        assert table.description
