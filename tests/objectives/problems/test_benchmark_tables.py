"""Published tables: each configuration has the values of its own row, in any order of the file."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bbkb.objectives.objective import ObjectiveError, Report
from bbkb.objectives.problems.benchmark_tables import FcNet, HpobenchMlp, NasBench101, NasBench201
from bbkb.objectives.problems.cells import Cell, Encoding
from bbkb.objectives.reference import DataSource
from tests.objectives.recorded_files import configurations, write_tables

GRIDS: dict[str, Any] = {"nasbench201": NasBench201(), "fcnet": FcNet(), "hpobench_mlp": HpobenchMlp()}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("tables")
    write_tables(root)
    return root


@pytest.mark.parametrize("name", GRIDS)
def test_configuration_has_its_own_row(name: str, folder: Path, silent: Report) -> None:
    options = GRIDS[name]
    table = options.load(DataSource(folder))
    candidates = configurations(options.default_space())
    assert len(candidates) == len(table.target)
    for arm in (0, 1, 777, len(candidates) - 1):
        evaluation = table.evaluate(candidates[arm], 3, silent)
        assert evaluation.metrics == {"noise_free": arm}
        assert abs(evaluation.value - arm) == 0.5
    assert table.optimum(maximize=True) == len(candidates) - 1
    assert table.optimum(maximize=False) == 0


def test_seed_draws_the_repeat_and_the_data_set_is_a_column(folder: Path, silent: Report) -> None:
    table = NasBench201().load(DataSource(folder))
    cell = configurations(NasBench201().default_space())[9]
    assert {table.evaluate(cell, seed, silent).value for seed in range(20)} == {8.5, 9.5}
    assert NasBench201(dataset="cifar100").load(DataSource(folder)).optimum(maximize=False) == 1000
    with pytest.raises(ValueError, match=r"op0 must be one of none, skip_connect.*got 'conv'"):
        table.evaluate({"op0": "conv"}, 0, silent)


def test_cells_have_their_own_accuracy_and_duration(folder: Path, silent: Report) -> None:
    table = NasBench101(operations="all").load(DataSource(folder))
    candidates = table.candidates()
    assert len(candidates) == 40
    evaluation = table.evaluate(candidates.parameters(7), 0, silent)
    assert evaluation.value == np.linspace(0.1, 0.9, 41).astype(np.float32)[7]
    assert evaluation.metrics["seconds"] == np.linspace(300, 500, 41).astype(np.float32)[7]
    assert Cell.parse(candidates.parameters(7)["cell"]).vertices == 6
    assert candidates.parameter_of.tolist()[15:] == [15, 15, 15, 16, 16, 16, 17, 17, 17, 18, 18, 18]


def test_papers_operations_exclude_cells_with_a_projection(folder: Path) -> None:
    table = NasBench101().load(DataSource(folder))
    assert 0 < len(table.candidates()) < 40
    assert not any("conv1x1" in cell for cell in table.columns["cell"])


def test_edge_types_give_different_features(folder: Path) -> None:
    first, second = (NasBench101(encoding=encoding).load(DataSource(folder)).features for encoding in Encoding)
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
