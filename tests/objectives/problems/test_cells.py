"""The space of cells against its published size and a slow enumeration, their features, and the network of a cell."""

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bbkb.objectives.objective import ObjectiveError, Report
from bbkb.objectives.problems.cells import (
    CONVOLUTION,
    OPERATIONS,
    POOLING,
    PROJECTION,
    Cell,
    CellSet,
    Encoding,
    cells_of,
    encode_cells,
)
from bbkb.objectives.problems.training.nas_cell import CELL, CellNetwork
from bbkb.objectives.reference import DataSource


@pytest.mark.parametrize(("vertices", "count"), [(2, 1), (3, 6), (4, 84), (5, 2441), (6, 62_010)])
def test_number_of_cells_equals_the_published_number(vertices: int, count: int) -> None:
    """Ying et al. 2019: 423 624 in all, so 359 082 with seven vertices."""
    assert len(cells_of(vertices)) == count


def slow_classes(vertices: int) -> set[frozenset[tuple[object, ...]]]:
    """Every labeled cell, as the set of all its renumberings."""
    pairs = list(itertools.combinations(range(vertices), 2))
    classes = set()
    for bits in itertools.product((False, True), repeat=len(pairs)):
        edges = tuple(pair for pair, bit in zip(pairs, bits, strict=True) if bit)
        for operations in itertools.product(OPERATIONS, repeat=vertices - 2):
            try:
                Cell(edges, operations)
            except ValueError:
                continue
            classes.add(frozenset(renumberings(edges, operations, vertices)))
    return classes


def renumberings(edges: Any, operations: Any, vertices: Any) -> Any:
    for inner in itertools.permutations(range(1, vertices - 1)):
        place = {0: 0, vertices - 1: vertices - 1, **{old: new for new, old in enumerate(inner, start=1)}}
        moved = tuple(sorted((place[u], place[v]) for u, v in edges))
        if all(u < v for u, v in moved):
            yield moved, tuple(operations[old - 1] for old in inner)


@pytest.mark.parametrize("vertices", [3, 4])
def test_cell_classes_of_a_slow_enumeration_are_listed_once(vertices: int) -> None:
    cells = cells_of(vertices)
    listed = [cells.cell(number) for number in range(len(cells))]
    classes = slow_classes(vertices)
    assert len(classes) == len(listed)
    for cell in listed:
        assert Cell.parse(str(cell)) == cell
        assert sum((cell.edges, cell.operations) in members for members in classes) == 1


@given(st.integers(0, 2440), st.permutations([1, 2, 3]))
def test_renumbered_cell_has_the_listed_cell_as_its_canonical_form(number: int, inner: list[int]) -> None:
    cells = cells_of(5)
    order = [0, *inner, 4]
    moved = cells.adjacency[[number]][:, order][:, :, order]
    if np.tril(moved[0]).any():
        return
    renumberings = CellSet(moved, cells.operations[[number]][:, [vertex - 1 for vertex in inner]])
    assert renumberings.canonical().cell(0) == cells.cell(number)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "1 to 9 edges"),
        ("0-1 1-2", "go upwards from 0 to 1"),
        (f"0-1 0-2 {CONVOLUTION}", "every vertex of a cell must lie on a path"),
        (f"0-1 1-2 0-1 {CONVOLUTION}", "must be different"),
        ("0-1 1-2 conv5x5", "must be one of conv3x3-bn-relu.*got 'conv5x5'"),
        (f"0:1 {CONVOLUTION}", "must be written like 0-1 1-2"),
        (f"0-1 {' '.join([PROJECTION] * 6)}", "at most 5 operations"),
    ],
)
def test_cell_that_breaks_a_rule_is_rejected_with_it(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Cell.parse(text)


ALL = cells_of(5)


def test_adjacency_encoding_equals_that_of_the_paper() -> None:
    """Calandriello et al. 2020, D.2: 15 bits of the upper triangle, 4 bits for convolutions, halves
    of norm <= 1."""
    cells = cells_of(6, (CONVOLUTION, POOLING))
    features, parameter_of = encode_cells(cells, Encoding.ADJACENCY)
    assert features.shape == (12_416, 19)
    np.testing.assert_array_equal(parameter_of, np.arange(19))
    assert (np.linalg.norm(features[:, :15], axis=1) <= 1 + 1e-12).all()
    assert np.linalg.norm(features[:, 15:], axis=1).max() == 1.0
    upper = np.triu_indices(6, 1)
    np.testing.assert_array_equal(features[:, :15] > 0, cells.adjacency[:, upper[0], upper[1]])


def test_one_hot_columns_of_an_operation_share_a_parameter() -> None:
    features, parameter_of = encode_cells(ALL, Encoding.ADJACENCY)
    assert features.shape[1] == 10 + 3 * 3
    assert parameter_of.tolist() == [*range(10), 10, 10, 10, 11, 11, 11, 12, 12, 12]
    assert len(np.unique(features, axis=0)) == len(ALL)


@given(st.permutations([1, 2, 3]))
def test_edge_types_do_not_depend_on_the_numbers_of_the_vertices(inner: list[int]) -> None:
    order = [0, *inner, 4]
    moved = ALL.adjacency[:, order][:, :, order]
    valid: np.ndarray = np.logical_not(np.any(np.tril(moved), axis=(1, 2)))
    renumbered = CellSet(
        np.where(valid[:, None, None], moved, ALL.adjacency),
        np.where(valid[:, None], ALL.operations[:, [vertex - 1 for vertex in inner]], ALL.operations),
    )
    np.testing.assert_allclose(encode_cells(renumbered, Encoding.EDGE_TYPES)[0], FEATURES)


FEATURES = encode_cells(ALL, Encoding.EDGE_TYPES)[0]


def paths(cell: Cell, vertex: int = 0) -> list[list[int]]:
    if vertex == cell.vertices - 1:
        return [[]]
    return [[v, *path] for u, v in cell.edges if u == vertex for path in paths(cell, v)]


def test_lengths_and_counts_of_paths_are_those_of_a_walk() -> None:
    """The last four features, before they are scaled, for every hundredth cell."""
    numbers = range(0, len(ALL), 100)
    walks = [(ALL.cell(number), [path[:-1] for path in paths(ALL.cell(number))]) for number in numbers]
    expected = np.array(
        [
            [
                max(map(len, inner)),
                min(map(len, inner)),
                np.log(len(inner)),
                max(sum(cell.operations[v - 1] == CONVOLUTION for v in path) for path in inner),
            ]
            for cell, inner in walks
        ]
    )
    got = FEATURES[list(numbers)][:, -4:]
    for place, (low, high) in enumerate([(0, 3), (0, 2), (0, np.log(8)), (0, 3)]):
        column = expected[:, place]
        scale = np.ptp(column) / np.ptp(got[:, place])
        offset = column[0] - got[0, place] * scale
        np.testing.assert_allclose(column, got[:, place] * scale + offset, err_msg=f"{place} {low} {high}")


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
