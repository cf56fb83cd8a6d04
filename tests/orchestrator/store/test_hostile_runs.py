"""A folder with the runs of several users: all other runs are listed if one cannot be read."""

import contextlib
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from bbkb.orchestrator.campaign.events import Event
from bbkb.orchestrator.cli.commands.results import _read_runs
from bbkb.orchestrator.errors import RunError
from bbkb.orchestrator.report.serve import Campaigns
from bbkb.orchestrator.store.runs import open_run
from bbkb.orchestrator.store.store import EventStore
from tests.orchestrator.synthetic_log import SyntheticLog


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
    temporary = Path(tempfile.gettempdir())
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
