"""A run's folder: the resolved campaign file, its provenance, the SQLite log and the report.

    runs/<name>-<time>/    or runs/<run>/ with the key `run`
        campaign.yaml      the resolved file; budget and workers may be edited
                           before a resume
        provenance.json    the campaign's name in the store, versions, git commit, seed, working
                           directory and command
        campaign.sqlite    the event log (unless the store is a URL)
        report.html
        run.log            the operator's log (`bbkb.orchestrator.logs`)

Only the owner can read the folder and its files, which contain no password. The folder can be
renamed.
"""

import functools
import json
import os
import platform
import reprlib
import secrets
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

from bbkb.orchestrator import credentials, files, yaml_file
from bbkb.orchestrator.campaign.events import CampaignCreated, Event
from bbkb.orchestrator.campaign.settings import Settings, plain, without_implied
from bbkb.orchestrator.errors import RunError
from bbkb.orchestrator.store.connect import Place
from bbkb.orchestrator.store.store import EventStore

_LONGEST_SHOWN = 200  # characters of a path in a message
_LOG = "campaign.sqlite"
_PROVENANCE = "provenance.json"
_MOST_PROVENANCE_BYTES = 1_000_000
_VERSIONED = ("bbkb-orchestrator", "ray", "numpy", "scipy", "scikit-learn", "SQLAlchemy")


@dataclass(frozen=True, slots=True)
class Run:
    """A run's folder and its store."""

    folder: Path
    place: Place = field(repr=False)  # the file or the database of the log; a URL may contain a password
    name: str = ""  # the campaign's name in the store, by default the folder's

    def __post_init__(self) -> None:
        if not self.name:
            object.__setattr__(self, "name", self.folder.name)

    @property
    def settings_file(self) -> Path:
        """The resolved campaign file."""
        return self.folder / "campaign.yaml"

    @property
    def report_file(self) -> Path:
        """The HTML report."""
        return self.folder / "report.html"

    @property
    def trials(self) -> Path:
        """The folder with a folder for each trial."""
        return self.folder / "trials"

    @property
    def has_own_log(self) -> bool:
        """Whether the log is in the run's folder, and not in a shared database."""
        return self.place == self.folder / _LOG

    @property
    def resume_command(self) -> str:
        """The shell command that continues the run."""
        return self.command("resume")

    def command(self, name: str) -> str:
        """Return the shell command `bbkb NAME` for the run."""
        return f"bbkb {name} {shlex.quote(str(self.folder))}"

    @contextmanager
    def store(self) -> Iterator[EventStore]:
        """Open the store."""
        store = EventStore(self.place)
        try:
            yield store
        finally:
            store.close()

    def events(self) -> list[Event]:
        """Return the whole log.

        Raises RunError if the run has no log, and StoreError if it cannot be read.
        """
        with self.store() as store:
            created, events = self.stream(store)
            return [created, *events]

    def stream(self, store: EventStore) -> tuple[CampaignCreated, Iterator[Event]]:
        """Return the first event and an iterator over the others, which reads page by page.

        Raises as `events` does.
        """
        return self.first(store), store.read(self.name, after=1)

    def first(self, store: EventStore) -> CampaignCreated:
        """Return the first event. Raises RunError if the log is empty."""
        created = store.event_at(self.name, 0)
        if not isinstance(created, CampaignCreated):
            raise RunError(
                f"{self.folder} has no log named {self.name!r} in its store: it is empty, or the store is another run's"
            )
        return created


def create(settings: Settings, first_events: Sequence[Event], began: str) -> Run:
    """Create the folder of a new run.

    A named folder without a log, whose process died before the first event, is reused. After an
    error, a new folder is removed. `began` is the command line.

    Raises RunError if files cannot be written or a run with that name exists, and StoreError if the
    log cannot be written.
    """
    is_new = True
    if settings.run:
        folder = _folder_of(settings)
        link = Path(settings.runs, settings.run)
        if link.is_symlink():
            raise RunError(f"{link} must not be a link when a run starts: remove it, or give the run another name")
        is_new = make_folder(folder)
    else:  # named after the campaign and the time
        name = f"{settings.name}-{time.strftime('%Y%m%d-%H%M%S')}"
        if settings.store != "sqlite":  # another machine may create a folder in the same second, unseen here
            name += f"-{secrets.token_hex(2)}"
        names = (name, *(f"{name}-{number}" for number in range(2, 100)))
        folders = (Path(settings.runs, each).resolve() for each in names)
        new = next((each for each in folders if make_folder(each)), None)
        if new is None:
            raise RunError(f"{Path(settings.runs)} has too many runs named {name}: wait a second")
        folder = new
    run = Run(folder, _place(settings.store, folder))
    try:
        with run.store() as store:  # first: the log decides which process starts the run
            store.create(run.name, first_events)
        write_settings(run, settings)
        provenance = {
            "campaign": run.name,
            "began": credentials.redact(began),
            "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            "working_directory": str(Path.cwd()),
            "seed": settings.seed,
            "git_commit": _git_commit(),
            "python": sys.version.split()[0],
            "platform": platform.platform(),
            "versions": {name: _version(name) for name in _VERSIONED},
        }
        _write(run.folder / _PROVENANCE, json.dumps(provenance, indent=2) + "\n")
    except BaseException:
        if is_new:
            shutil.rmtree(folder, ignore_errors=True)  # the first error is the important one
        raise
    return run


def find(settings: Settings) -> Run | None:
    """Return the run specified by the key `run` of these settings.

    Return None if the key is not set or the run does not exist. If the log is in a database, the
    folder may be missing on this machine; `make_folder` creates it.
    """
    if settings.run is None:
        return None
    folder = _folder_of(settings)
    run = Run(folder, _place(settings.store, folder), _name_in_store(folder))
    if settings.store == "sqlite" and not os.path.isdir(folder):  # False for a path that is too long
        return None
    with run.store() as store:
        return run if store.has(run.name) else None


def unwritable(runs: str, reason: str | None) -> RunError:
    """Return the error of a folder `runs` in which no run can be created."""
    return RunError(f"runs must be a folder that can be created and written, got {reprlib.repr(runs)}: {reason}")


def check_writable(settings: Settings) -> None:
    """Raise RunError if no folder can be created in `runs`, or StoreError if the store fails."""
    root = Path(settings.runs)
    try:
        there = next(folder for folder in (root, *root.parents) if folder.exists())
    except OSError as error:
        raise unwritable(settings.runs, error.strerror) from error
    if not (there.is_dir() and os.access(there, os.W_OK | os.X_OK)):
        raise unwritable(settings.runs, f"{there} cannot be written")
    if settings.store != "sqlite":
        EventStore(settings.store).close()


def open_run(folder: Path, *, runs_it: bool = False) -> Run:
    """Return the run in `folder`.

    The folder may belong to another user. Nothing in it is executed, and a database that only
    another user has named is refused, because a connection sends the password of this user. `runs_it`:
    the user asks to continue the run, which executes the code of its campaign file.

    Raises RunError if the folder is not a run or cannot be read, and ConfigError if its campaign
    file is damaged.
    """
    folder = _resolve_folder(folder)
    file, log = folder / "campaign.yaml", folder / _LOG
    try:
        if log.is_file():
            store = "sqlite"  # it also has the settings
        elif yaml_file.has_content(file):
            store = str(yaml_file.read(file).tree.get("store", ""))
            if not store:
                raise RunError(f"{file} names no store: it is damaged; restore it, or start a new run")
        elif folder.is_file():
            raise RunError(f"{folder} is a file: name the folder of a run (`bbkb run` creates runs below runs/)")
        else:
            raise RunError(f"{folder} is not a run: it has no campaign.yaml (`bbkb run` creates runs below runs/)")
        if store == "sqlite" and not log.is_file():
            raise RunError(f"{folder} has no campaign.sqlite: its log is gone, so it cannot be continued")
        if store != "sqlite" and not runs_it and not is_own(folder):
            raise RunError(
                f"{folder} is another user's, and its campaign file names the store {credentials.stored(store)}, to "
                "which reading it would send your password: if you know this database, copy the folder and read the "
                "copy"
            )
        return Run(folder, _place(store, folder), _name_in_store(folder))
    except OSError as error:
        raise RunError(f"{folder} cannot be read: {error.strerror}") from error
    except RecursionError as error:
        raise RunError(f"{folder} has a campaign file or provenance that is nested too deep to be read") from error


def is_own(folder: Path) -> bool:
    """Return whether a run's folder and its campaign file belong to this user. Raises OSError."""
    return all(path.stat().st_uid == os.geteuid() for path in (folder, folder / "campaign.yaml"))


def looks_like_run(folder: Path) -> bool:
    """Return whether `folder` has a campaign file or a log, or is unreadable."""
    for name in ("campaign.yaml", _LOG):
        try:
            os.lstat(folder / name)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError:
            return True
        return True
    return False


def write_settings(run: Run, settings: Settings) -> None:
    """Write the resolved campaign file atomically. Raises RunError."""

    text = "# The resolved campaign file. Before `bbkb resume`, budget and workers may be changed here.\n"
    _write(run.settings_file, text + yaml_file.write(without_implied(plain(settings))))


def _write(path: Path, text: str) -> None:
    try:
        files.write_text(path, text)
    except OSError as error:
        raise RunError(
            f"{path} cannot be written: {error.strerror}; free some space, or make its folder writable"
        ) from error


def _name_in_store(folder: Path) -> str:
    """Return the campaign's name from the provenance; the folder's name if it is missing or damaged."""
    try:
        provenance = json.loads(files.read_small(folder / _PROVENANCE, _MOST_PROVENANCE_BYTES))
    except (FileNotFoundError, ValueError):
        return folder.name
    except OSError as error:
        raise RunError(f"{folder / _PROVENANCE} cannot be read: {error.strerror}") from error
    name = provenance.get("campaign") if isinstance(provenance, dict) else None
    return name if isinstance(name, str) and name else folder.name


def _folder_of(settings: Settings) -> Path:
    """Return the folder of the run specified by the key `run`."""
    return _resolve_folder(Path(settings.runs, settings.run or ""))


def _resolve_folder(folder: Path) -> Path:
    try:
        return folder.resolve()
    except (OSError, RuntimeError) as error:
        raise RunError(f"{folder} is a link to itself: remove it, or name another folder") from error


def make_folder(folder: Path) -> bool:
    """Create a private folder if it is missing. Return whether it is new. Raises RunError."""
    try:
        folder.mkdir(files.PRIVATE_FOLDER, parents=True)
        return True
    except OSError as error:
        if os.path.isdir(folder):  # False also for a path that is too long
            return False
        name = str(folder) if len(str(folder)) <= _LONGEST_SHOWN else f"{str(folder)[:_LONGEST_SHOWN]}…"
        raise RunError(f"the run's folder {name} cannot be created ({error.strerror}): set `runs:`") from error


def _place(store: str, folder: Path) -> Place:
    return folder / _LOG if store == "sqlite" else store


@functools.cache
def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"  # the program runs from a source folder


def _git_commit() -> str | None:
    """Return the working directory's commit, `+changes` if modified; None outside git."""
    try:
        commit, changes = (
            subprocess.run(["git", *command.split()], capture_output=True, text=True, check=True, timeout=10).stdout
            for command in ("rev-parse HEAD", "status --porcelain --untracked-files=no")
        )
        return commit.strip() + ("+changes" if changes.strip() else "")
    except (OSError, subprocess.SubprocessError):
        return None
