"""A folder with the runs of several users: all other runs are listed if one cannot be read, or if
reading it never ends."""

import contextlib
import json
import os
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from bbkb.orchestrator.campaign.events import Event
from bbkb.orchestrator.cli.commands import results
from bbkb.orchestrator.cli.commands.results import _read_runs
from bbkb.orchestrator.errors import RunError
from bbkb.orchestrator.serve import campaigns, sources
from bbkb.orchestrator.serve.sources import Sources
from bbkb.orchestrator.store import limited
from bbkb.orchestrator.store.event_store import EventStore
from tests.orchestrator.serve.conftest import running_server
from tests.orchestrator.serve.test_app import updates
from tests.orchestrator.store.raw import change
from tests.orchestrator.synthetic_log import SyntheticLog


def make_run(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "campaign.yaml").write_text("name: c\nstore: sqlite\n", encoding="utf-8")
    (folder / "provenance.json").write_text(json.dumps({"campaign": folder.name}), encoding="utf-8")
    write_log(folder, SyntheticLog(trials=3).events())
    return folder


def write_log(folder: Path, events: list[Event]) -> None:
    with contextlib.closing(EventStore(f"sqlite:///{folder / 'campaign.sqlite'}")) as store:
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


ENDLESS_VIEW = """
alter table bbkb_campaigns rename to old;
create view bbkb_campaigns as
with recursive r(n) as (select 1 union all select n + 1 from r)
select 'view-never-ends' campaign, 0 epoch, '' holder, 0.0 since, 5 length, 0 head from r where n < 0
"""
NESTED_IDENTITY = (
    f"insert into bbkb_holders values ('identity-is-nested', 0, 'x', '{'[' * 100_000}', 0.0, 0.0, 0, '', '')"
)
ODD: dict[str, Callable[[Path], object]] = {  # name of a run → how it is damaged
    "provenance-is-a-pipe": provenance_is_a_pipe,
    "provenance-never-ends": provenance_never_ends,
    "provenance-is-huge": lambda folder: os.truncate(folder / "provenance.json", 3_000_000_000),
    "provenance-is-nested": lambda folder: (folder / "provenance.json").write_text("[" * 200_000 + "]" * 200_000),
    "file-is-invalid": lambda folder: (folder / "campaign.yaml").write_text("a: ["),
    "file-is-nested": lambda folder: (folder / "campaign.yaml").write_text("a: " + "[" * 50_000),
    "file-is-huge": lambda folder: os.truncate(folder / "campaign.yaml", 3_000_000_000),
    "file-is-a-bomb": file_is_a_bomb,
    "log-is-binary": lambda folder: (folder / "campaign.sqlite").write_bytes(os.urandom(10_000)),
    "log-has-another-trial": log_has_another_trial,
    "view-never-ends": lambda folder: change(folder / "campaign.sqlite", ENDLESS_VIEW),
    "identity-is-nested": lambda folder: change(folder / "campaign.sqlite", NESTED_IDENTITY),
}


def make_damaged_runs(folder: Path) -> None:
    make_run(folder / "good")
    for name, damage in ODD.items():
        damage(make_run(folder / name))


def test_list_shows_readable_runs_and_the_reasons_of_unreadable_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results, "OPEN_SECONDS", 2.0)
    make_damaged_runs(tmp_path)
    histories, unreadable = _read_runs(tmp_path)
    either = {"provenance-is-nested"}  # its name is the folder's, if Python reads that many levels
    readable = {"good", "identity-is-nested"}  # no holder is read
    assert {path.name for path, _ in histories} - either == readable
    assert unreadable.keys() - either == ODD.keys() - readable - either
    wait_for_end_of_calls()  # no abandoned call occupies a processor


def wait_for_end_of_calls() -> None:
    for thread in threading.enumerate():
        if thread.name == "limited":
            thread.join(60.0)
            assert not thread.is_alive()


def test_page_shows_readable_runs_and_new_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaigns, "SOURCES_SECONDS", 0.1)
    monkeypatch.setattr(campaigns, "TURN_SECONDS", 2.0)
    monkeypatch.setattr(sources, "OPEN_SECONDS", 5.0)
    make_damaged_runs(tmp_path)
    with running_server(str(tmp_path)) as address:
        expect(address, {"good": "finished"}, list(ODD))
        make_run(tmp_path / "late")
        expect(address, {"good": "finished", "late": "finished"}, list(ODD))
    wait_for_end_of_calls()


def expect(address: str, states: dict[str, str], others: list[str]) -> None:
    """Wait until the page shows these states and lists every other campaign."""
    shown: dict[str, str] = {}
    while states.items() - shown.items() or not set(others) <= shown.keys():
        ((_, sent),) = updates(address, "/events")
        shown = {line["name"]: line["state"] for line in sent["campaigns"]}


def test_private_folder_is_unreadable_with_the_reason(tmp_path: Path) -> None:
    make_run(tmp_path / "good")
    private = make_run(tmp_path / "private")
    private.chmod(0)
    # root may read every folder
    check = check_as_another_user if os.geteuid() == 0 else check_private
    check(tmp_path)
    private.chmod(0o700)


def check_as_another_user(tmp_path: Path) -> None:
    temporary = Path(tempfile.gettempdir())
    for path in (tmp_path / "good", tmp_path, *tmp_path.parents):
        if path == temporary or temporary not in path.parents:
            break
        path.chmod(0o755)
    for file in (tmp_path / "good").iterdir():
        file.chmod(0o644)
    _read_runs(tmp_path)  # imports all it needs: the other user may have no access to this Python's modules
    Sources(str(tmp_path)).find()
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
    problems = {source.name: source.problem for source in Sources(str(folder)).find()}
    assert problems["good"] == ""
    assert "Permission denied" in problems["private"]


def test_run_that_becomes_readable_is_shown(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run")
    text = (folder / "campaign.yaml").read_text()
    (folder / "campaign.yaml").write_text("a: [")
    sources = Sources(str(tmp_path))
    assert [source.url for source in sources.find()] == [""]
    (folder / "campaign.yaml").write_text(text)
    assert [bool(source.url) for source in sources.find()] == [True]


def test_call_that_takes_too_long_is_rejected_and_one_in_time_is_passed_on() -> None:
    waiting = threading.Event()
    with pytest.raises(RunError, match=r"longer than 0\.01 s"):
        limited.call(waiting.wait, 0.01)
    waiting.set()
    assert limited.call(lambda: 5, 60.0) == 5
    with pytest.raises(KeyError):
        limited.call(lambda: os.environ["NOT_SET_HERE"], 60.0)
