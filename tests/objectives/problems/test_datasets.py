"""`bbkb.objectives.objective`: The sources of data, in this order: a folder given by the user, data sets
in scikit-learn, an explicit download.
"""

import gzip
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from bbkb.objectives.objective import ObjectiveError
from bbkb.objectives.problems import datasets
from bbkb.objectives.problems.datasets import load_abalone, load_cadata, load_digits, load_mnist
from bbkb.objectives.problems.training.softmax import SoftmaxRegression
from bbkb.objectives.reference import DataSource

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
