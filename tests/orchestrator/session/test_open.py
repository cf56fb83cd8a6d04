"""Opening a session rebuilds from a snapshot what the whole log gives, and notices damage anywhere in the log."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bbkb import Constraint, Objective, Range
from bbkb.orchestrator.campaign.events import CampaignCreated
from bbkb.orchestrator.errors import StoreError
from bbkb.orchestrator.session.build import build
from bbkb.orchestrator.session.open import rebuild
from bbkb.orchestrator.store import snapshots
from bbkb.orchestrator.store.runs import open_run
from tests.orchestrator import test_curve_model, test_population
from tests.orchestrator.runs import check_rebuilt, tune_here
from tests.orchestrator.store.raw import change

SQUARE = {"x": Range(0.0, 1.0), "y": Range(0.0, 1.0)}
WORKERS = {"executor": "simulated", "count": 5, "simulation": {"sigma": 1.0, "failure_rate": 0.1}}


def bowl(x: float, y: float) -> float:
    if x > 0.8:
        raise ValueError("too far")
    return -((x - 0.3) ** 2) - (y - 0.6) ** 2


def several(x: float, y: float) -> dict[str, float]:
    return {"good": bowl(min(x, 0.8), y), "small": x + y, "weight": y - x}


def search(folder: Path, **arguments: Any) -> Path:
    function = arguments.pop("function", bowl)
    sections = {"strategy": {"name": "bbkb"}, "workers": WORKERS, **arguments.pop("settings", {})}
    return tune_here(folder / "runs", function, SQUARE, sections, evaluations=70, **arguments).folder


def known(folder: Path) -> Path:
    table = folder / "earlier.csv"
    table.write_text("x,y,reward\n" + "".join(f"{i / 9},{1 - i / 9},{i}\n" for i in range(12)))
    return search(folder, settings={"known_results": [{"table": str(table)}]})


RUNS: dict[str, Callable[[Path], Path]] = {
    "usual": search,
    "batches": lambda folder: search(folder, settings={"strategy": {"name": "bbkb", "mode": "batch"}}),
    "deterministic": lambda folder: search(folder, settings={"objective": {"deterministic": True}}),
    "goals": lambda folder: search(
        folder,
        function=several,
        objectives=[Objective("good"), Objective("small", "minimize")],
        constraints=[Constraint("weight", at_most=0.5)],
    ),
    "known results": known,
    "learning curves": lambda folder: test_curve_model.run(folder).folder,
    "population": lambda folder: test_population.train(folder, evaluations=30).folder,
}


@pytest.mark.parametrize("name", RUNS)
def test_run_is_rebuilt_from_a_snapshot_as_from_its_whole_log(tmp_path: Path, name: str) -> None:
    opened = open_run(RUNS[name](tmp_path))
    with opened.store() as store:
        created = opened.first(store)
        assert isinstance(created, CampaignCreated)
        length = store.length(opened.name)
        engine = check_rebuilt(build(created.settings).problem, store, opened.name, every=max(1, length // 7))
    assert engine.state.totals.ended > 10


def test_damage_before_the_snapshot_is_noticed(tmp_path: Path) -> None:
    opened = open_run(search(tmp_path))
    with opened.store() as store:
        problem = build(opened.first(store).settings).problem
        assert snapshots.load(store, opened.name)[0] == store.length(opened.name)
        change(opened.folder / "campaign.sqlite", "UPDATE bbkb_events SET body = replace(body, '0.', '1.') "
               "WHERE position = (SELECT min(position) FROM bbkb_events WHERE kind = 'trial_succeeded')")  # fmt: skip
        with pytest.raises(StoreError, match=r"\(trial_succeeded\) .* has been changed"):
            rebuild(problem, store, opened.name)
