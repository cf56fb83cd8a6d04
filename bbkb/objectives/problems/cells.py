"""NAS-Bench-101's space of cells (Ying et al. 2019, section 2): acyclic graphs with an operation at
each inner vertex.

A cell has at most 7 vertices and 9 edges. Vertex 0 is the input and the last one is the output;
every vertex is on a path from input to output; edges lead from lower to higher indices. Two cells
that differ only in the order of their inner vertices are the same cell, and one of them is listed.
There are 1, 6, 84, 2441, 62 010 and 359 082 cells with 2 to 7 vertices, 423 624 in total, as
published.

Their features for a model are the papers' encoding, or one that is invariant under isomorphism.

* `adjacency` (Ying et al. 2019; Calandriello et al. 2020, appendix D.2): the bits of the adjacency
  matrix's upper triangle and the operation of each inner vertex. It depends on the order of the
  inner vertices.
* `edge_types`: the counts of each kind of edge (by the operations at its ends) and of each
  operation, the number of edges, the longest and the shortest path, the logarithm of the number of
  paths, and the largest number of 3×3 convolutions on a path. It does not depend on the order of
  the vertices, but some different cells have equal features.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Self

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

CONVOLUTION = "conv3x3-bn-relu"
PROJECTION = "conv1x1-bn-relu"
POOLING = "maxpool3x3"
OPERATIONS = (CONVOLUTION, PROJECTION, POOLING)
MOST_VERTICES = 7
MOST_EDGES = 9


@dataclass(frozen=True)
class Cell:
    """One cell: `edges` (u, v) with u < v in ascending order, and the operation of each inner
    vertex.

    Raises ValueError if the cell is not in the space.
    """

    edges: tuple[tuple[int, int], ...]
    operations: tuple[str, ...]

    def __post_init__(self) -> None:
        vertices = self.vertices
        if not 2 <= vertices <= MOST_VERTICES:
            raise ValueError(f"a cell must have at most {MOST_VERTICES - 2} operations, got {len(self.operations)}")
        if not 1 <= len(self.edges) <= MOST_EDGES:
            raise ValueError(f"a cell must have 1 to {MOST_EDGES} edges, got {len(self.edges)}")
        for operation in self.operations:
            if operation not in OPERATIONS:
                raise ValueError(f"an operation of a cell must be one of {', '.join(OPERATIONS)}, got {operation!r}")
        if len(set(self.edges)) < len(self.edges) or not all(0 <= u < v < vertices for u, v in self.edges):
            raise ValueError(f"edges of a cell must be different and go upwards from 0 to {vertices - 1}, got {self}")
        if {u for u, _ in self.edges} != set(range(vertices - 1)) or {v for _, v in self.edges} != set(
            range(1, vertices)
        ):
            raise ValueError(f"every vertex of a cell must lie on a path from input to output, got {self}")

    @property
    def vertices(self) -> int:
        """The number of vertices, including input and output."""
        return len(self.operations) + 2

    def before(self, vertex: int) -> list[int]:
        """Return the vertices with an edge into `vertex`, ascending."""
        return [u for u, v in self.edges if v == vertex]

    def __str__(self) -> str:
        return f"{' '.join(f'{u}-{v}' for u, v in self.edges)} {' '.join(self.operations)}".strip()

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a cell in the format of `str`, such as `0-1 0-2 1-2 maxpool3x3`. Raises
        ValueError."""
        words = text.split()
        pairs = [word.split("-") for word in words if word[:1].isdigit()]
        if not all(len(pair) == 2 and pair[0].isdecimal() and pair[1].isdecimal() for pair in pairs):
            raise ValueError(f"a cell must be written like 0-1 1-2 {CONVOLUTION}, got {text!r}")
        edges = tuple(sorted((int(pair[0]), int(pair[1])) for pair in pairs))
        return cls(edges, tuple(word for word in words if not word[:1].isdigit()))


@dataclass(frozen=True)
class CellSet:
    """n cells with the same number of vertices V."""

    adjacency: NDArray[np.bool_]  # (n, V, V) bool, strictly upper triangular
    operations: NDArray[np.intp]  # (n, V − 2), indices in `names`
    names: tuple[str, ...] = OPERATIONS  # the names of the operations

    def __len__(self) -> int:
        return len(self.adjacency)

    @property
    def vertices(self) -> int:
        """The number of vertices of each cell, V."""
        return int(self.adjacency.shape[1])

    def cell(self, number: int) -> Cell:
        """Return the cell with the index `number`."""
        edges = tuple((int(u), int(v)) for u, v in np.argwhere(self.adjacency[number]))
        return Cell(edges, tuple(self.names[index] for index in self.operations[number]))

    def canonical(self) -> "CellSet":
        """Return the same cells, with their inner vertices in the listed order."""
        permutations = _permutations(self.vertices)
        codes = np.stack([_code(_relabel(self.adjacency, order)) for order in permutations])
        colors = np.stack([_color_code(self.operations[:, _inner(order)], len(self.names)) for order in permutations])
        size = len(self.names) ** self.operations.shape[1]
        best = np.argmin(codes * size + colors, axis=0)
        adjacency = np.empty_like(self.adjacency)
        operations = np.empty_like(self.operations)
        for number, order in enumerate(permutations):
            is_best = best == number
            adjacency[is_best] = _relabel(self.adjacency[is_best], order)
            operations[is_best] = self.operations[is_best][:, _inner(order)]
        return CellSet(adjacency, operations, self.names)


_NO_CODE = 2**40  # larger than every code, but small enough that a product does not overflow


def cells_of(vertices: int, names: Sequence[str] = OPERATIONS) -> CellSet:
    """Return all different cells with this size and these operations, always in the same order."""
    graphs = _graphs(vertices)
    permutations = _permutations(vertices)
    inner = vertices - 2
    products = list(itertools.product(range(len(names)), repeat=inner))
    colorings = np.array(products, dtype=np.intp).reshape(len(products), inner)
    least = np.tile(np.arange(len(colorings)), (len(graphs), 1))
    code = _code(graphs)
    # an assignment of operations is listed if no symmetry of its graph leads to a smaller one
    for order in permutations:
        is_symmetry = _code(_relabel(graphs, order)) == code
        least[is_symmetry] = np.minimum(least[is_symmetry], _color_code(colorings[:, _inner(order)], len(names)))
    graph, coloring = np.nonzero(least == np.arange(len(colorings)))
    return CellSet(graphs[graph], colorings[coloring], tuple(names))


@cache
def _graphs(vertices: int) -> NDArray[np.bool_]:
    """Return one graph (n, V, V) of each class of graphs that differ only in the order of the inner
    vertices, sorted by code."""
    upper = np.triu_indices(vertices, 1)
    codes = np.arange(2 ** len(upper[0]), dtype=np.int64)
    bits = (codes[:, None] >> np.arange(len(upper[0]))[::-1]) & 1 == 1
    bits = bits[bits.sum(axis=1) <= MOST_EDGES]
    adjacency = np.zeros((len(bits), vertices, vertices), dtype=bool)
    adjacency[:, upper[0], upper[1]] = bits
    # edges lead to higher indices, so a vertex with incoming and outgoing edges is on a path from
    # input to output
    goes_on = np.all(np.any(adjacency[:, :-1], axis=2), axis=1)
    adjacency = adjacency[goes_on & np.all(np.any(adjacency[:, :, 1:], axis=1), axis=1)]
    code = _code(adjacency)
    least = code.copy()
    for order in _permutations(vertices):
        np.minimum(least, _code(_relabel(adjacency, order)), out=least)
    listed: NDArray[np.bool_] = adjacency[least == code]
    return listed


@cache
def _permutations(vertices: int) -> tuple[tuple[int, ...], ...]:
    inner = itertools.permutations(range(1, vertices - 1))
    return tuple((0, *order, vertices - 1) for order in inner)


def _relabel(adjacency: NDArray[np.bool_], order: tuple[int, ...]) -> NDArray[np.bool_]:
    return adjacency[:, order][:, :, order]


def _inner(order: tuple[int, ...]) -> list[int]:
    return [vertex - 1 for vertex in order[1:-1]]


def _code(adjacency: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return the bits of the upper triangle as one number (n,); `_NO_CODE` if an edge leads to a
    lower index."""
    upper = np.triu_indices(adjacency.shape[1], 1)
    lower = np.tril_indices(adjacency.shape[1])
    weights = 2 ** np.arange(len(upper[0]), dtype=np.int64)[::-1]
    codes = adjacency[:, upper[0], upper[1]] @ weights
    return np.where(adjacency[:, lower[0], lower[1]].any(axis=1), _NO_CODE, codes)


def _color_code(operations: NDArray[np.intp], choices: int) -> NDArray[np.int64]:
    return operations @ (choices ** np.arange(operations.shape[1], dtype=np.int64)[::-1])


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
    count = np.zeros((len(cells), cells.vertices))
    count[:, 0] = 1.0
    for vertex in range(1, cells.vertices):
        count[:, vertex] = (cells.adjacency[:, :vertex, vertex] * count[:, :vertex]).sum(axis=1)
    return count[:, -1:]
