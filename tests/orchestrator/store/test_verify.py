"""A second bookkeeping agrees with the state and with `verify` on every real log, and `verify` finds the damage of
others; all other runs of a folder are listed if one cannot be read."""

import contextlib
import itertools
import json
import os
import re
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bbkb.objectives.objective import Candidates, Evaluation, Parameters, Report
from bbkb.orchestrator.bandit.kernels import RBF
from bbkb.orchestrator.bandit.results import Observation
from bbkb.orchestrator.bandit.strategies import STRATEGIES
from bbkb.orchestrator.bandit.strategy import AnyStrategy
from bbkb.orchestrator.campaign.events import (
    BatchChosen,
    Event,
    ModelRefreshed,
    SessionClosed,
    SessionOpened,
    TrialsDispatched,
    TrialSucceeded,
)
from bbkb.orchestrator.campaign.state import CampaignState
from bbkb.orchestrator.campaign.status import Status
from bbkb.orchestrator.campaign.transitions import apply
from bbkb.orchestrator.cli.commands.results import _read_runs
from bbkb.orchestrator.engine.engine import Problem, replay
from bbkb.orchestrator.engine.pool import Pool
from bbkb.orchestrator.errors import RunError
from bbkb.orchestrator.report.serve import Campaigns
from bbkb.orchestrator.session.driver import Driver
from bbkb.orchestrator.store import verify as verify_module
from bbkb.orchestrator.store.runs import open_run
from bbkb.orchestrator.store.store import EventStore, rows_of
from bbkb.orchestrator.store.verify import Findings, compare, verify
from bbkb.strategies import BBKB
from bbkb.workers.local import DurationModel, Failures, SimulatedExecutor
from bbkb.workers.messages import FailureKind
from tests.examples import examples
from tests.orchestrator.events import closed, created, opening
from tests.orchestrator.fakes import Killed
from tests.orchestrator.store.books import Books
from tests.orchestrator.store.raw import change
from tests.orchestrator.synthetic_log import SyntheticLog

EVALUATIONS = 14


@dataclass(frozen=True)
class Line:
    """An objective that is its parameter."""

    def evaluate(self, parameters: Parameters, seed: int, report: Report) -> Evaluation:
        return Evaluation(float(parameters["x"]))


def real_log(
    folder: Path,
    seed: int = 0,
    failure_rate: float = 0.2,
    kills: Sequence[int] = (5,),
    strategy: AnyStrategy | None = None,
) -> list[Event]:
    """The driver's log of a campaign, of uniform by default, that is killed after a number of steps of its loop,
    and resumed."""
    folder.mkdir()
    x = np.linspace(0.0, 1.0, 20)
    problem = Problem(seed, Pool(Candidates(x[:, None], {"x": x})), strategy or STRATEGIES["uniform"]())
    settings = {
        "objective": {"direction": "maximize"},
        "budget": {"evaluations": EVALUATIONS},
        "workers": {"retries": 1},
    }
    store = EventStore(f"sqlite:///{folder / 'c.sqlite'}")
    store.create("c", [created(settings, arms=20)])
    for lives in (*kills, 10**6):
        writer, steps = store.claim("c", "test"), itertools.count(1)

        def observe(status: Status, steps: "itertools.count[int]" = steps, lives: int = lives) -> None:
            if next(steps) == lives:
                raise Killed

        engine = replay(problem, store.read("c"))
        failures = Failures(failure_rate, FailureKind.ERROR)
        executor = SimulatedExecutor(Line(), 3, DurationModel(1.0, 0.5), failures, seed, engine.state.clock.last_time)
        opened = opening(settings, 3, executor.now(), writer.epoch, "simulated")
        with contextlib.suppress(Killed):
            Driver(engine, writer, executor, observe).run(opened)
    events = list(store.read("c"))
    store.close()
    return events


@pytest.fixture
def sound_log(tmp_path: Path) -> list[Event]:
    """The log of a campaign that was killed once."""
    return real_log(tmp_path / "real")


def store_of(folder: Path, events: Sequence[Event]) -> EventStore:
    """A store with these events, a claim for each session."""
    (folder / "c.sqlite").unlink(missing_ok=True)
    store = EventStore(f"sqlite:///{folder / 'c.sqlite'}")
    epoch = 0
    for is_opening, group in groupby(events, lambda event: isinstance(event, SessionOpened)):
        chunk = list(group)
        if epoch == 0 and not is_opening:
            store.create("c", chunk)
        elif is_opening:
            for opened in chunk:
                writer = store.claim("c", "test", seen=epoch)
                writer.append([opened])
                epoch = writer.epoch
        else:
            writer.append(chunk)
    return store


def findings_of(folder: Path, events: Sequence[Event]) -> Findings:
    store = store_of(folder, events)
    try:
        return verify(store, "c")
    finally:
        store.close()


@settings(max_examples=examples(15))
@given(
    seed=st.integers(0, 1000),
    kills=st.lists(st.integers(1, 12), max_size=3),
    failure_rate=st.sampled_from([0.0, 0.3, 0.7]),
    cut=st.floats(0.02, 1.0),
)
def test_verify_accepts_every_prefix_of_a_real_log(
    tmp_path_factory: pytest.TempPathFactory, seed: int, kills: list[int], failure_rate: float, cut: float
) -> None:
    folder = tmp_path_factory.mktemp("log")
    events = real_log(folder / "real", seed, failure_rate, kills)
    events = events[: max(1, round(cut * len(events)))]
    books = Books()
    assert [rule for event in events for rule in books.record(event)] == []
    findings = findings_of(folder, events)
    assert list(books.differences(findings.state)) == []
    assert (findings.events, findings.problems) == (len(events), [])


def index(events: Sequence[Event], kind: type[Event], nth: int = 0) -> int:
    return [place for place, event in enumerate(events) if isinstance(event, kind)][nth]


def edit(kind: type[Event], new: Callable[[Any], list[Event]], nth: int = 0) -> Callable[[list[Event]], list[Event]]:
    """Return a function that replaces the n-th event of a kind by the events that `new` returns."""

    def change(events: list[Event]) -> list[Event]:
        place = index(events, kind, nth)
        return [*events[:place], *new(events[place]), *events[place + 1 :]]

    return change


def duplicate(kind: type[Event]) -> Callable[[list[Event]], list[Event]]:
    return edit(kind, lambda event: [event, event])


def remove(kind: type[Event]) -> Callable[[list[Event]], list[Event]]:
    return edit(kind, lambda event: [])


def with_arm_20(event: BatchChosen) -> list[Event]:
    return [replace(event, picks=(replace(event.picks[0], arm=20), *event.picks[1:]))]


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (duplicate(TrialSucceeded), r"attempt 1, which is not running: its attempt 1 is finished"),
        (duplicate(TrialsDispatched), r"was dispatched while running"),
        (duplicate(ModelRefreshed), r"was learned by the strategy, and is learned"),
        (duplicate(BatchChosen), r"trial \d+ is next, got 0"),
        (remove(BatchChosen), r"was dispatched and never chosen"),
        (remove(TrialsDispatched), r"which is not running: its attempt 0 is waiting"),
        (edit(BatchChosen, with_arm_20), r"trial 0 must be of one of 20 arms, got arm 20"),
    ],
)
def test_books_find_an_impossible_log(
    sound_log: list[Event], change: Callable[[list[Event]], list[Event]], rule: str
) -> None:
    books = Books()
    assert any(re.search(rule, broken) for event in change(sound_log) for broken in books.record(event))


@pytest.mark.parametrize("change", [duplicate(TrialSucceeded), remove(BatchChosen), remove(TrialsDispatched)])
def test_verify_names_an_event_that_does_not_apply(
    tmp_path: Path, sound_log: list[Event], change: Callable[[list[Event]], list[Event]]
) -> None:
    (problem,) = findings_of(tmp_path, change(sound_log)).problems
    assert re.match(r"event \d+ \(\w+\) does not apply", problem)


def with_another_reward(event: ModelRefreshed) -> list[Event]:
    first, *others = event.observations
    return [replace(event, observations=(Observation(first.arm, 7.0), *others))]


def without_a_result(event: ModelRefreshed) -> list[Event]:
    return [replace(event, observations=event.observations[1:])]


@pytest.mark.parametrize("new", [with_another_reward, without_a_result])
def test_verify_names_a_refit_that_learned_something_else(
    tmp_path: Path, sound_log: list[Event], new: Callable[[ModelRefreshed], list[Event]]
) -> None:
    (problem,) = findings_of(tmp_path, edit(ModelRefreshed, new)(sound_log)).problems
    assert problem.startswith(f"event {index(sound_log, ModelRefreshed)} (model_refreshed)")


def test_verify_names_a_missing_event(tmp_path: Path, sound_log: list[Event]) -> None:
    store = store_of(tmp_path, sound_log)
    change(tmp_path / "c.sqlite", "DELETE FROM bbkb_events WHERE position IN (4, 5, 6, 9)")
    found = verify(store, "c")
    store.close()
    assert found.events == 4
    assert "event 4 of 'c' is missing" in str(found)


def test_verify_lists_running_and_waiting_trials(tmp_path: Path, sound_log: list[Event]) -> None:
    events = sound_log[: index(sound_log, TrialsDispatched) + 1]
    books = Books()
    assert not [rule for event in events for rule in books.record(event)]
    text = str(findings_of(tmp_path, events))
    for attempt in books.attempts("running"):
        assert f"trial {attempt.trial} (attempt 1)" in text
    assert text.endswith("sound")


def test_verify_reports_a_disagreement_with_the_campaign_state(
    tmp_path: Path, sound_log: list[Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    def apply_and_miscount(state: CampaignState, event: Event) -> CampaignState:
        after = apply(state, event)
        succeeded = after.totals.succeeded + isinstance(event, SessionClosed)
        return replace(after, totals=replace(after.totals, succeeded=succeeded))

    monkeypatch.setattr(verify_module, "apply", apply_and_miscount)
    (problem,) = findings_of(tmp_path, sound_log).problems
    assert problem.startswith("succeeded: the events count ")


def test_verify_says_whether_dictionaries_are_as_small_as_theorem_1_promises(tmp_path: Path) -> None:
    log = real_log(tmp_path / "theory", kills=(), strategy=BBKB.theory(kernel=RBF(0.3)))
    refits = [event for event in log if isinstance(event, ModelRefreshed)]
    assert "dictionary_bound" in refits[-1].record
    assert f"holds at {len(refits)} refits" in str(findings_of(tmp_path, log))

    def with_too_many_atoms(event: ModelRefreshed) -> list[Event]:
        return [replace(event, dictionary_size=int(event.record["dictionary_bound"]) + 1)]

    found = findings_of(tmp_path, edit(ModelRefreshed, with_too_many_atoms, nth=1)(log))
    assert f"does not hold at 1 of {len(refits)} refits; the closest is refit 2" in str(found)
    assert not found.problems  # the log itself is intact


def test_verify_is_silent_about_dictionaries_that_no_theorem_bounds(tmp_path: Path) -> None:
    log = real_log(tmp_path / "paper", kills=(), strategy=BBKB.paper())
    assert "effective_dimension" in next(event for event in log if isinstance(event, ModelRefreshed)).record
    assert "Theorem" not in str(findings_of(tmp_path, log))


def test_verify_rejects_an_unknown_campaign(tmp_path: Path, sound_log: list[Event]) -> None:
    store = store_of(tmp_path, sound_log)
    with pytest.raises(RunError, match="there is no campaign"):
        verify(store, "another")
    store.close()


@pytest.fixture
def long_log(tmp_path: Path) -> EventStore:
    store = EventStore(f"sqlite:///{tmp_path / 'c.sqlite'}")
    store.create("c", [closed(0)])
    store.claim("c", "me").append([closed(number) for number in range(1, 1500)])
    store.close()
    return store


def copy_store(tmp_path: Path) -> EventStore:
    return EventStore(f"sqlite:///{shutil.copy(tmp_path / 'c.sqlite', tmp_path / 'copy.sqlite')}")


def test_copy_equals_the_beginning_of_a_longer_log(long_log: EventStore, tmp_path: Path) -> None:
    copy = copy_store(tmp_path)
    assert compare(long_log, copy, "c")[0]
    long_log.claim("c", "me").append([closed(1500), closed(1501)])
    assert compare(long_log, copy, "c")[0]
    is_earlier, text = compare(copy, long_log, "c")
    assert not is_earlier
    assert "more events than the 1500" in text
    with pytest.raises(RunError, match="is it a copy of another run"):
        compare(long_log, copy, "d")


def test_comparison_reveals_a_change_with_recomputed_checksums(long_log: EventStore, tmp_path: Path) -> None:
    copy = copy_store(tmp_path)
    changed = [closed(number if number != 700 else 7) for number in range(1, 1500)]
    rows = [row._asdict() for row in rows_of("c", 1, 1, changed, long_log.checksum_before("c", 1))]
    with contextlib.closing(sqlite3.connect(tmp_path / "c.sqlite")) as raw, raw:
        raw.executemany("UPDATE bbkb_events SET body = :body, checksum = :checksum WHERE position = :position", rows)
        raw.execute("UPDATE bbkb_campaigns SET head = ?", (rows[-1]["checksum"],))
    assert len(list(long_log.read("c"))) == 1500  # the chain itself is sound
    is_earlier, text = compare(long_log, copy, "c")
    assert not is_earlier
    assert "event 700 differs" in text


def make_run(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "campaign.yaml").write_text("name: c\nstore: sqlite\n", encoding="utf-8")
    (folder / "provenance.json").write_text(json.dumps({"campaign": folder.name}), encoding="utf-8")
    write_log(folder, SyntheticLog(trials=3).events())
    return folder


def write_log(folder: Path, events: list[Event]) -> None:
    with contextlib.closing(EventStore(folder / "campaign.sqlite")) as store:
        store.create(folder.name, events)


def provenance_is_a_pipe(folder: Path) -> None:
    (folder / "provenance.json").unlink()
    os.mkfifo(folder / "provenance.json")


def provenance_never_ends(folder: Path) -> None:
    (folder / "provenance.json").unlink()
    (folder / "provenance.json").symlink_to("/dev/zero")


def file_is_a_bomb(folder: Path) -> None:
    levels = "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 10))
    (folder / "campaign.yaml").write_text("store: sqlite\na0: &a0 [1]\n" + levels)


def log_has_another_trial(folder: Path) -> None:
    events = SyntheticLog(trials=3).events()
    object.__setattr__(next(event for event in events if event.kind == "trial_succeeded"), "trial", 10**6)
    (folder / "campaign.sqlite").unlink()
    write_log(folder, events)


ODD: dict[str, Callable[[Path], object]] = {  # name of a run → how it is damaged
    "provenance-is-a-pipe": provenance_is_a_pipe,
    "provenance-never-ends": provenance_never_ends,
    "provenance-is-huge": lambda folder: os.truncate(folder / "provenance.json", 3_000_000_000),
    "provenance-is-nested": lambda folder: (folder / "provenance.json").write_text("[" * 200_000 + "]" * 200_000),
    "log-is-binary": lambda folder: (folder / "campaign.sqlite").write_bytes(os.urandom(10_000)),
    "log-has-another-trial": log_has_another_trial,
}
FILES: dict[str, Callable[[Path], object]] = {  # damage that only a resume meets: the log has the settings
    "file-is-invalid": lambda folder: (folder / "campaign.yaml").write_text("a: ["),
    "file-is-nested": lambda folder: (folder / "campaign.yaml").write_text("a: " + "[" * 50_000),
    "file-is-huge": lambda folder: os.truncate(folder / "campaign.yaml", 3_000_000_000),
    "file-is-a-bomb": file_is_a_bomb,
}


def problems_on_the_page(folder: Path) -> dict[str, str]:
    return {watched.name: watched.overview()["problem"] for watched in Campaigns(str(folder)).find()}


def test_list_shows_readable_runs_and_the_reasons_of_unreadable_ones(tmp_path: Path) -> None:
    make_run(tmp_path / "good")
    for name, damage in (ODD | FILES).items():
        damage(make_run(tmp_path / name))
    histories, unreadable = _read_runs(tmp_path)
    either = {"provenance-is-nested"}  # its name is the folder's, if Python reads that many levels
    assert {path.name for path, _ in histories} - either == {"good"} | FILES.keys()
    assert unreadable.keys() - either == ODD.keys() - either
    assert {name for name, problem in problems_on_the_page(tmp_path).items() if problem} - either == ODD.keys() - either


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a folder of another user")
def test_database_that_only_another_user_has_named_is_refused(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "other")
    (folder / "campaign.yaml").write_text("name: c\nstore: postgresql://u:secret@127.0.0.1:1/x\n")
    (folder / "campaign.sqlite").unlink()
    assert open_run(folder).place == "postgresql://u:secret@127.0.0.1:1/x"
    os.chown(folder / "campaign.yaml", 65_534, 65_534)
    with pytest.raises(RunError, match="it would send your password") as caught:
        open_run(folder)
    assert "secret" not in str(caught.value)
    assert open_run(folder, runs_it=True).name == "other"


def test_private_folder_is_unreadable_with_the_reason(tmp_path: Path) -> None:
    make_run(tmp_path / "good")
    private = make_run(tmp_path / "private")
    private.chmod(0)
    # root may read every folder
    check = check_as_another_user if os.geteuid() == 0 else check_private
    check(tmp_path)
    private.chmod(0o700)


def check_as_another_user(tmp_path: Path) -> None:
    temporary = Path(os.environ.get("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir()))
    for path in (tmp_path / "good", tmp_path, *tmp_path.parents):
        if path == temporary or temporary not in path.parents:
            break
        path.chmod(0o755)
    for file in (tmp_path / "good").iterdir():
        file.chmod(0o644)
    _read_runs(tmp_path)  # imports all it needs: the other user may have no access to this Python's modules
    problems_on_the_page(tmp_path)
    reading = os.fork()
    if reading == 0:
        try:
            os.setuid(65_534)
            check_private(tmp_path)
        except BaseException:
            os._exit(1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(reading, 0)[1]) == 0


def check_private(folder: Path) -> None:
    histories, unreadable = _read_runs(folder)
    assert [path.name for path, _ in histories] == ["good"]
    assert "Permission denied" in unreadable["private"]
    problems = problems_on_the_page(folder)
    assert problems["good"] == ""
    assert "Permission denied" in problems["private"]


def test_run_that_becomes_readable_is_shown(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run")
    content = (folder / "campaign.sqlite").read_bytes()
    (folder / "campaign.sqlite").write_bytes(b"damaged")
    campaigns = Campaigns(str(tmp_path))
    assert [bool(watched.overview()["problem"]) for watched in campaigns.find()] == [True]
    (folder / "campaign.sqlite").write_bytes(content)
    assert [watched.overview()["problem"] for watched in campaigns.find()] == [""]
