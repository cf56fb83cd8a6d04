"""Resumes a run from Python: finds the run, and checks that it recorded the given campaign."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

from bbkb.objectives.errors import warn_user
from bbkb.objectives.pickled import LiveFunction, PickledFunction
from bbkb.orchestrator.bandit.options import excerpt
from bbkb.orchestrator.campaign.commands import Close
from bbkb.orchestrator.campaign.settings import Settings
from bbkb.orchestrator.errors import RunError, UserError
from bbkb.orchestrator.running.resume import prepare
from bbkb.orchestrator.session.build import Function, Parts
from bbkb.orchestrator.settings.options import objective_of
from bbkb.orchestrator.store import snapshots
from bbkb.orchestrator.store.runs import Run, find, open_run

Resume: TypeAlias = bool | str | Path

# the file or the name of the function: pickles of the same function differ between processes
_FUNCTION = ("objective.function", "objective.options.")


def find_run(settings: Settings, resume: Resume) -> Run | None:
    """Return the run to resume; None if a new run begins. `resume` is the run's folder, or True for
    the run that the settings name, if it exists.

    Raises:
        ValueError: if `resume` has a wrong type.
        UserError: if `resume` is True and the settings do not name a run.
        RunError: if the folder is not a run, or a run with that name exists and `resume` is False.
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


def prepare_resume(
    run: Run, settings: Settings, say: Callable[[str], None], function: Function | None
) -> tuple[Settings, Parts] | Close:
    """Return the settings for resuming `run` and the parts built from them, or the campaign's end
    if it is complete. The given function replaces the recorded function with the same name.

    Raises:
        UserError: for mistakes that `bbkb resume` reports with exit code 2.
        ObjectiveError: if the objective cannot be built.
    """
    with run.store() as store:
        old = snapshots.current(run, store).settings
    # the run stays in its current folder
    settings = replace(settings, runs=old.runs, run=old.run)
    before = objective_of(old.objective)
    after = objective_of(settings.objective)
    of_function = PickledFunction | LiveFunction
    if not isinstance(before, of_function) or not isinstance(after, of_function):
        return prepare(run, settings, say, function=function)
    prepared = prepare(run, settings, say, compared=_FUNCTION, function=function)
    # the user may have fixed the function, or changed the quantity that it measures
    if not isinstance(prepared, Close) and before.code != after.code:
        warn_user(
            f"the function may not be the one that {run.folder} began with: its code has changed. The run continues "
            "with the given function and keeps its finished results; if these measure something else, start a new run"
        )
    return prepared
