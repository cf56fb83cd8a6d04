"""Features of NAS-Bench-101's cells for a model: the papers' encoding, and one that is invariant
under isomorphism.

* `adjacency` (Ying et al. 2019; Calandriello et al. 2020, appendix D.2): the bits of the adjacency
  matrix's upper triangle and the operation of each inner vertex. It depends on the order of the
  inner vertices.
* `edge_types`: the counts of each kind of edge (by the operations at its ends) and of each
  operation, the number of edges, the longest and the shortest path, the logarithm of the number of
  paths, and the largest number of 3×3 convolutions on a path. It does not depend on the order of
  the vertices, but some different cells have equal features.
"""

from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from bbkb.objectives.problems.cells import CONVOLUTION, MOST_EDGES, CellSet

Floats = NDArray[np.float64]

_NONE = -1e3  # the length of the longest path to an unreachable vertex


class Encoding(StrEnum):
    """The encoding of cells as features."""

    ADJACENCY = "adjacency"
    EDGE_TYPES = "edge_types"


def encode_cells(cells: CellSet, encoding: Encoding) -> tuple[Floats, NDArray[np.intp]]:
    """Return features (n, d), and the index of the parameter of each feature."""
    return _adjacency(cells) if Encoding(encoding) is Encoding.ADJACENCY else _edge_types(cells)


def _adjacency(cells: CellSet) -> tuple[Floats, NDArray[np.intp]]:
    """Return edges and operations, with both halves scaled as in the paper, so that no cell's norm
    exceeds 1. If there are two operations, a single bit encodes them."""
    upper = np.triu_indices(cells.vertices, 1)
    choices = len(cells.names)
    inner = cells.operations.shape[1]
    edges = cells.adjacency[:, upper[0], upper[1]] / np.sqrt(MOST_EDGES)
    if choices == 2:
        operations = (cells.operations == 0).astype(np.float64)
        width = 1
    else:
        operations = _one_hot(cells).reshape(len(cells), -1)
        width = choices
    places = np.concatenate([np.arange(len(upper[0])), len(upper[0]) + np.repeat(np.arange(inner), width)])
    return np.hstack([edges, operations / np.sqrt(max(1, inner))]), places.astype(np.intp)


def _edge_types(cells: CellSet) -> tuple[Floats, NDArray[np.intp]]:
    one_hot = _one_hot(cells)
    last = cells.vertices - 1
    choices = len(cells.names)
    kinds = np.zeros((len(cells), cells.vertices, choices + 2))
    kinds[:, 0, choices] = kinds[:, last, choices + 1] = 1.0
    kinds[:, 1:last, :choices] = one_hot
    types = np.einsum("nuv,nua,nvb->nab", cells.adjacency.astype(np.float64), kinds, kinds).reshape(len(cells), -1)
    every = np.ones(cells.operations.shape)
    convolutions = (cells.operations == cells.names.index(CONVOLUTION)).astype(np.float64)
    columns = [
        types,
        one_hot.sum(axis=1),
        cells.adjacency.sum(axis=(1, 2))[:, None],
        _longest(cells, every),
        -_longest(cells, -every),  # the shortest
        np.log(_path_count(cells)),
        _longest(cells, convolutions),
    ]
    features = np.hstack(columns)
    low = features.min(axis=0)
    high = features.max(axis=0)
    varies = high > low
    scaled: Floats = (features[:, varies] - low[varies]) / (high[varies] - low[varies])
    return scaled, np.arange(scaled.shape[1])


def _one_hot(cells: CellSet) -> Floats:
    return np.eye(len(cells.names))[cells.operations]


def _longest(cells: CellSet, weights: Floats) -> Floats:
    """Return (n, 1): the largest sum of inner `weights` (n, V − 2) along a path to the output."""
    last = cells.vertices - 1
    best = np.zeros((len(cells), cells.vertices))
    for vertex in range(1, cells.vertices):
        reached = np.where(cells.adjacency[:, :vertex, vertex], best[:, :vertex], _NONE).max(axis=1)
        best[:, vertex] = reached + (weights[:, vertex - 1] if vertex < last else 0.0)
    return best[:, last:]


def _path_count(cells: CellSet) -> Floats:
    """Return the number of paths from input to output (n, 1)."""
    count = np.zeros((len(cells), cells.vertices))
    count[:, 0] = 1.0
    for vertex in range(1, cells.vertices):
        count[:, vertex] = (cells.adjacency[:, :vertex, vertex] * count[:, :vertex]).sum(axis=1)
    return count[:, -1:]
