"""Features of cells: invariances hold, and the features of the papers are reproduced."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bbkb.objectives.problems.cell_features import Encoding, encode_cells
from bbkb.objectives.problems.cells import CONVOLUTION, POOLING, Cell, CellSet, cells_of

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


@pytest.mark.parametrize("encoding", list(Encoding))
def test_features_are_finite_and_vary(encoding: Encoding) -> None:
    for vertices, names in itertools.product((3, 4), ((CONVOLUTION, POOLING),)):
        features, parameter_of = encode_cells(cells_of(vertices, names), encoding)
        assert np.isfinite(features).all()
        assert len(parameter_of) == features.shape[1]
