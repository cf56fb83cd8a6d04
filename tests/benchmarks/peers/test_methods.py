"""Every method that is installed searches a table and a function."""

from importlib.util import find_spec

import numpy as np
import pytest

from benchmarks.peers.functions import Function
from benchmarks.peers.methods.catalogue import _LIBRARIES, PEERS, known_methods, make_method
from benchmarks.peers.search import search
from benchmarks.peers.tables import Recorded
from objectives.parameters import Choice, Ordered
from orchestrator.errors import UserError

TABLE = Recorded(
    {"size": Ordered((1, 2, 4, 8)), "flag": Ordered((0, 1)), "kind": Choice(("a", "b", "c"))},
    np.array([[i, j, k] for i in range(4) for j in range(2) for k in range(3)]),
    np.random.default_rng(0).normal(size=(24, 2)),
)
HEAVY = {
    name: pytest.mark.skipif(any(find_spec(one) is None for one in libraries), reason=f"needs {', '.join(libraries)}")
    for name, libraries in _LIBRARIES.items()
}
PROBLEMS: dict[str, Function | Recorded] = {"function": Function("branin", 0, 0.01), "table": TABLE}
SLOW = ("table", "ax")  # its fits take half a minute, and the function shows the same
EVALUATIONS = 10


def cases() -> list[object]:
    """Every method on every problem."""
    return [
        pytest.param(
            PROBLEMS[problem],
            name,
            id=f"{problem}-{name}",
            marks=[*([HEAVY[name]] if name in HEAVY else []), *([pytest.mark.slow] if (problem, name) == SLOW else [])],
        )
        for name in (*PEERS, "bbkb", "gp_bucb")
        for problem in PROBLEMS
    ]


@pytest.mark.filterwarnings("ignore")  # the libraries' own
@pytest.mark.parametrize(("problem", "name"), cases())
def test_a_method_searches(problem: Function | Recorded, name: str) -> None:
    method = make_method(name, problem, 0, EVALUATIONS, {})
    record = search(problem, method, 3, EVALUATIONS, 0, ("problem", name))
    assert len(record.regrets) == EVALUATIONS
    assert min(record.recommended) >= 0.0
    assert np.isfinite(record.recommended).all()


def test_ours_chooses_among_the_points_there_are() -> None:
    cells = Recorded(TABLE.space, TABLE.levels[::2], TABLE.rewards[::2], is_whole=False)
    record = search(cells, make_method("bbkb", cells, 0, EVALUATIONS, {}), 2, EVALUATIONS, 0, ("cells", "bbkb"))
    assert set(record.regrets) <= set(cells.regrets)


def test_a_strategy_of_ours_takes_options() -> None:
    options = {"wide": {"name": "bbkb", "norm_bound": 5.0}}
    record = search(TABLE, make_method("wide", TABLE, 0, EVALUATIONS, options), 2, EVALUATIONS, 0, ("table", "wide"))
    assert len(record.regrets) == EVALUATIONS


def test_an_unknown_method_is_named_with_the_nearest() -> None:
    with pytest.raises(UserError, match=r"got 'tpee'; did you mean 'tpe'"):
        known_methods(("tpee",), {})
