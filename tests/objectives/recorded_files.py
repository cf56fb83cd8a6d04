"""Small stand-ins of the published tables, in the form of their files."""

import itertools
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from bbkb.objectives.parameters import Space
from bbkb.objectives.problems.benchmark_tables import (
    FCNET_SPACE,
    HPOBENCH_MLP_SPACE,
    NAS_BENCH_201_SPACE,
    levels_of,
)
from bbkb.objectives.problems.cells import OPERATIONS, cells_of

GRIDS: Mapping[str, tuple[Space, tuple[str, ...]]] = {
    "nasbench201": (NAS_BENCH_201_SPACE, ("cifar10", "cifar100")),
    "fcnet": (FCNET_SPACE, ("protein_structure", "parkinsons_telemonitoring")),
    "hpobench_mlp": (HPOBENCH_MLP_SPACE, ("vehicle",)),
}


def configurations(space: Space) -> list[dict[str, object]]:
    """Return all configurations of the space; the last parameter varies fastest."""
    return [dict(zip(space, values, strict=True)) for values in itertools.product(*levels_of(space).values())]


def write_grid(root: Path, folder: str) -> None:
    """Every configuration in a shuffled order; its value is 1000 · column plus its index, with
    deviations up to half a unit."""
    space, columns = GRIDS[folder]
    counts = [len(levels) for levels in levels_of(space).values()]
    index = np.array(list(itertools.product(*map(range, counts))), dtype=np.uint8)
    order = np.random.default_rng(0).permutation(len(index))
    values = {
        name: (1000 * place + order[:, None] + np.array([-0.5, 0.5, np.nan])).astype(np.float32)
        for place, name in enumerate(columns)
    }
    (root / folder).mkdir()
    np.savez(root / folder / f"{folder}.npz", index=index[order], **values)


def write_cells(root: Path) -> None:
    """Forty cells with six vertices in the order of `cells_of`, and one with five."""
    cells = cells_of(6)
    rows = np.r_[:20, 30_000:30_020]
    adjacency = np.zeros((41, 7, 7), np.uint8)
    operations = np.full((41, 7), -3, np.int8)
    adjacency[:40, :6, :6] = cells.adjacency[rows]
    operations[:40, 1:5] = cells.operations[rows]
    assert cells.names == OPERATIONS
    (root / "nasbench101").mkdir()
    np.savez(
        root / "nasbench101" / "nasbench101_30001.npz",
        n_vertices=np.array([6] * 40 + [5], np.uint8),
        adjacency=adjacency,
        ops=operations,
        val_acc_108=np.linspace(0.1, 0.9, 41).astype(np.float32),
        train_time_108=np.linspace(300, 500, 41).astype(np.float32),
        trainable_parameters=np.arange(41, dtype=np.uint32),
    )


def write_tables(root: Path) -> None:
    """Write all of them."""
    for name in GRIDS:
        write_grid(root, name)
    write_cells(root)
