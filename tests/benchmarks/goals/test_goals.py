"""The comparison over several objectives on a small table: every method runs, and losses are
computed as documented."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.goals.__main__ import _read, _table
from benchmarks.goals.methods import LABELS, make_method
from benchmarks.goals.problems import Table
from benchmarks.goals.search import MARKS, Record, search
from benchmarks.peers.tables import Recorded
from objectives.parameters import Ordered

LEVELS = np.array([(width, depth) for width in range(20) for depth in range(20)])
WIDTH, DEPTH = LEVELS.T


def table(limit: float | None = None) -> Table:
    space = {name: Ordered(tuple(range(20))) for name in ("width", "depth")}
    accuracies = 1.0 - (WIDTH - 12.0) ** 2 / 400 - (DEPTH - 9.0) ** 2 / 400
    return Table("grid", Recorded(space, LEVELS, accuracies[:, None]), (WIDTH + DEPTH).astype(float), limit)


def test_the_loss_of_the_whole_table_is_0_and_that_of_nothing_better_than_the_median_is_1() -> None:
    every = np.arange(400)
    assert table().loss(every) == pytest.approx(0.0)
    assert table(12.0).loss(every) == 0.0
    worst = np.array([int(table().accuracies.argmin())])
    assert table().loss(worst) == 1.0
    assert table(12.0).loss(np.flatnonzero(WIDTH + DEPTH > 12)) == 1.0
    half = np.flatnonzero(WIDTH < 9)
    assert 0.0 < table().loss(half) < 1.0


def test_a_candidate_is_the_row_with_its_parameters() -> None:
    problem = table()
    for arm in (0, 17, 399):
        row = problem.rows[arm]
        assert (WIDTH[row], DEPTH[row]) == tuple(problem.candidates.parameters(arm).values())


@pytest.mark.parametrize("name", LABELS)
def test_a_method_asks_for_rows_and_is_given_both_results(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.goals.search.MARKS", (5, 12, 24))
    for problem in (table(), table(12.0)):
        record = search(problem, make_method(name, problem, 0), name, workers=4, seed=0)
        assert len(record.losses) == len(MARKS)
        assert all(
            0.0 <= later <= earlier <= 1.0 for earlier, later in zip(record.losses, record.losses[1:], strict=False)
        )
        assert (record.feasible > 0) == (problem.limit is not None)


def test_the_table_ranks_methods_search_by_search(tmp_path: Path) -> None:
    def record(method: str, loss: float) -> Record:
        return Record(
            problem="grid", method=method, workers=4, seed=0, losses=[loss] * 3, feasible=1, best=2, milliseconds=1.0
        )

    records = {name: {("grid", 0): record(name, loss)} for name, loss in (("bbkb", 0.1), ("tpe", 0.2))}
    shown = _table("title", records, [("grid", 0)])
    assert [list(column.cells)[:2] for column in shown.columns][4] == ["1.00", "2.00"]
    assert _read(tmp_path / "none.jsonl") == {}
