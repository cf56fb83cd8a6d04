"""Continues a run from Python: finds it, and checks that the campaign at hand is the one that it
recorded."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from objectives.objective import ObjectiveError
from objectives.pickled import PickledFunction, has_equal_code
from orchestrator.bandit.options import excerpt
from orchestrator.campaign.commands import Close
from orchestrator.errors import RunError, UserError
from orchestrator.running.resume import prepare
from orchestrator.session.build import Parts
from orchestrator.settings.loading import from_mapping
from orchestrator.settings.model import Settings
from orchestrator.store.runs import Run, find, open_run

Resume: TypeAlias = bool | str | Path

_FUNCTION = ("objective.function", "objective.options.")  # its file: the same function has other bytes in each process


def find_run(settings: Settings, resume: Resume) -> Run | None:
    """Return the run to continue; None when a new one begins.

    Args:
        settings: those of the campaign at hand; `run` names the run of `resume=True`.
        resume: the run's folder; True: the run that `run` names, if it exists.

    Raises:
        ValueError: when `resume` has a wrong type.
        UserError: when `resume=True` has no name to look for.
        RunError: when the folder is no run, or a run of that name exists and `resume` is False.
    """
    if not isinstance(resume, bool | str | Path):
        raise ValueError(f"resume must be the path of a run's folder, True or False, got {excerpt(resume)}")
    if not isinstance(resume, bool):
        return open_run(Path(resume), runs_it=True)
    if resume and settings.run is None:
        raise UserError(
            "resume=True must know which run to continue, got no name: give run=NAME, or "
            "resume=FOLDER for a run that exists"
        )
    begun = find(settings)
    if begun is not None and not resume:
        raise RunError(
            f"`run` must name a new run, got {settings.run!r}, which exists in {begun.folder}: pass resume=True to "
            "continue it, or give another name"
        )
    return begun


def prepare_resume(run: Run, settings: Settings, say: Callable[[str], None]) -> tuple[Settings, Parts] | Close:
    """Return the settings to continue `run` with, and what was built of them; the end, when nothing
    is left to do.

    Args:
        run: the run.
        settings: those of the campaign at hand. A function in them replaces the recorded one of the
            same name.
        say: prints a line.

    Raises:
        UserError: what `bbkb resume` reports as the user's mistake; ObjectiveError too.
    """
    with run.store() as store:
        old = from_mapping(run.recorded_settings(store))
    settings = settings.model_copy(update={"runs": old.runs, "run": old.run})  # where it is; it is not moved
    before = old.objective.options
    after = settings.objective.options
    if not isinstance(before, PickledFunction) or not isinstance(after, PickledFunction):
        return prepare(run, settings, say)
    prepared = prepare(run, settings, say, compared=_FUNCTION)
    if not isinstance(prepared, Close):
        _warn_of_change(run.folder, before, after)
    return prepared


def _warn_of_change(folder: Path, before: PickledFunction, after: PickledFunction) -> None:
    """Warn when the function is not known to be the recorded one: a user may have repaired it, or
    changed what it measures."""
    try:
        reason = "" if has_equal_code(before.function(), after.function()) else "its code has changed"
    except ObjectiveError as error:
        reason = f"they cannot be compared: {error}"
    if reason:
        warnings.warn(
            f"the function may not be the one that {folder} began with: {reason}. The run continues with the given "
            "function and keeps its finished results; if these measure something else, start a new run",
            stacklevel=2,
        )
