"""`bbkb.objectives.problems.cells`: the space against its published size and a slow enumeration, and the
features of cells.
"""

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

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
