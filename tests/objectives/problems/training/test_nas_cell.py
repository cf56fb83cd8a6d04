"""Training the network of a cell; the cells themselves are tested in `test_cells`."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bbkb.objectives.objective import ObjectiveError, Report
from bbkb.objectives.problems.cells import CONVOLUTION, OPERATIONS, POOLING
from bbkb.objectives.problems.training.nas_cell import CELL, CellNetwork
from bbkb.objectives.reference import DataSource

CHAIN = f"0-1 1-2 2-3 {CONVOLUTION} {CONVOLUTION}"


def load_training(**options: Any) -> Any:
    pytest.importorskip("torch", reason="the objective nas_cell needs PyTorch")
    return CellNetwork(**{"dataset": "digits", "train_size": 200, "validation_size": 100, **options}).load(DataSource())


def test_missing_torch_is_reported_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bbkb.objectives.problems.training.torch_training.find_spec", lambda name: None)
    with pytest.raises(ObjectiveError, match=r"nas_cell needs PyTorch.*pip install"):
        CellNetwork(dataset="digits").load(DataSource())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"operations": (POOLING,)}, "operations must be conv3x3-bn-relu and others"),
        ({"operations": (CONVOLUTION, "skip")}, "must be some of .*got 'skip'"),
    ],
)
def test_wrong_operations_are_rejected(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CellNetwork(**options)


def test_candidates_are_the_cells_of_the_paper() -> None:
    candidates = load_training().candidates()
    assert candidates.features.shape == (12_416, 19)
    arm = candidates.parameters(7)
    assert len(arm[CELL].split()) == arm["edges"] + 4
    assert arm[CELL].count(CONVOLUTION) == arm["convolutions"]


def test_options_select_a_wider_space_and_other_features() -> None:
    wide = load_training(vertices=5, operations=OPERATIONS, encoding="edge_types").candidates()
    assert len(wide) == 2441
    assert not np.array_equal(wide.features.shape, (2441, 19))


def test_candidates_of_a_wide_space_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bbkb.objectives.problems.training.nas_cell.MOST_CELLS", 100)
    first, second = (load_training(vertices=5).candidates() for _ in range(2))
    assert len(first) == 100
    np.testing.assert_array_equal(first.columns[CELL], second.columns[CELL])


def test_nas_cell_learns(silent: Report) -> None:
    options = {"train_size": 500, "epochs": 3, "batch_size": 25}
    evaluation = load_training(**options).evaluate({CELL: CHAIN}, 0, silent)
    assert evaluation.value == evaluation.metrics["accuracy"] > 0.5
    assert evaluation.metrics["seconds"] > 0.0


def test_diverging_training_gives_nan(silent: Report) -> None:
    evaluation = load_training(epochs=1, learning_rate=1e30).evaluate({CELL: CHAIN}, 0, silent)
    assert math.isnan(evaluation.value)


def test_invalid_cell_is_rejected(silent: Report) -> None:
    with pytest.raises(ValueError, match="a cell must have 1 to 9 edges"):
        load_training().evaluate({}, 0, silent)


def test_number_of_weights_equals_a_count_by_hand() -> None:
    """A chain of a 3×3 convolution and a pooling, one stack of one cell with four channels, ten
    classes."""
    torch = pytest.importorskip("torch", reason="the objective nas_cell needs PyTorch")
    from bbkb.objectives.problems.cells import Cell
    from bbkb.objectives.problems.training.cell_network import build_cell_network

    network = build_cell_network(
        Cell.parse(f"0-1 1-2 2-3 {CONVOLUTION} {POOLING}"), 8, 10, channels=4, stacks=1, cells=1
    )
    stem, projection, convolution = 4 * 9 + 8, 4 * 4 + 8, 4 * 4 * 9 + 8
    assert sum(weights.numel() for weights in network.parameters()) == stem + projection + convolution + 4 * 10 + 10
    assert network(torch.zeros(2, 1, 8, 8)).shape == (2, 10)


def test_cell_of_every_kind_scores_small_and_large_images() -> None:
    torch = pytest.importorskip("torch", reason="the objective nas_cell needs PyTorch")
    from bbkb.objectives.problems.cells import Cell
    from bbkb.objectives.problems.training.cell_network import build_cell_network, vertex_channels

    texts = ("0-1", "0-1 0-2 1-2 maxpool3x3", f"0-1 0-2 0-3 1-2 1-4 2-4 3-4 0-4 {' '.join(OPERATIONS)}")
    for text in texts:
        for side in (8, 28):
            network = build_cell_network(Cell.parse(text), side, 10, channels=6, stacks=2, cells=2)
            assert network(torch.zeros(2, 1, side, side)).shape == (2, 10)
    assert vertex_channels(Cell.parse(texts[2]), 6, 7) == [6, 3, 2, 2, 7]
    chain = Cell.parse(f"0-1 0-2 1-3 2-3 2-4 3-4 {' '.join(OPERATIONS)}")
    assert vertex_channels(chain, 6, 7) == [6, 3, 4, 3, 7]  # vertex 1 is as wide as the one it feeds


def test_default_description_names_the_images(silent: Report) -> None:
    assert "bundled digits" in load_training().description
    assert "MNIST is used when" in replace(CellNetwork(), train_size=200).load(DataSource()).description
