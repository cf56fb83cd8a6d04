"""The output of attempts, in the process that runs the campaign.

This module checks the folder of trials, saves output that came with an outcome, and quotes the end
of the output in a failure's message.
"""

import contextlib
import logging
import os
from dataclasses import replace
from pathlib import Path

from bbkb.orchestrator.errors import RunError
from bbkb.orchestrator.store.runs import Run
from bbkb.workers.messages import Outcome, TrialFailed
from bbkb.workers.output_files import (
    SENT_BYTES,
    OutputFile,
    move_all_outputs,
    move_output,
    output_file,
    read_end,
    running_folder,
    tail_of,
)

_LOGGER = logging.getLogger("bbkb.session")


def prepare_outputs(run: Run) -> Path | None:
    """Return the run's folder of trials, ready for the output of its attempts.

    Returns None, and logs a warning, if the folder cannot be written.
    """
    try:
        running_folder(run.trials).mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        _LOGGER.warning("output of evaluations is not saved: %s", error)
        return None
    return run.trials


def check_trial_folders(run: Run) -> None:
    """Raise RunError if the run's folder of trials is not writable. Without this check, every trial
    would fail."""
    trials = run.trials
    if os.path.islink(trials) and not os.path.exists(trials):
        reason = f"it is a link to {os.readlink(trials)}, which does not exist"
    elif os.path.exists(trials) and not os.path.isdir(trials):
        reason = "it is a file"
    else:
        first = trials if os.path.exists(trials) else run.folder
        if os.access(first, os.W_OK | os.X_OK):
            return
        reason = f"{first} is not writable"
    raise RunError(
        f"{trials} must be a folder in which trials can create their own folders, but {reason}: "
        f"move it away or make it writable, then continue with `{run.resume_command}`"
    )


def remove_outputs(trials: Path | None) -> None:
    """Undo `prepare_outputs` when all workers have ended. The output of attempts remains."""
    if trials is None:
        return
    try:
        move_all_outputs(trials)
    except OSError as error:
        _LOGGER.warning("cannot clean up %s: %s", trials, error)


def with_output(outcome: Outcome, trials: Path | None) -> Outcome:
    """Return the outcome; the message of a failure then includes the end of its attempt's output.

    Output that came with the outcome is written into `trials`, the run's folder of trials. It is
    None if no output is saved.
    """
    if trials is None:
        return outcome
    try:
        return _with_output(outcome, trials)
    except OSError as error:
        _LOGGER.warning("output of trial %d is not saved: %s", outcome.trial, error)
        return outcome


def _with_output(outcome: Outcome, trials: Path) -> Outcome:
    if outcome.output:
        with contextlib.closing(OutputFile(trials, outcome.trial, outcome.attempt)) as file:
            file.write(outcome.output.encode())
    if not isinstance(outcome, TrialFailed):
        return outcome
    move_output(trials, outcome.trial, outcome.attempt)  # its process may have been killed
    output = read_end(output_file(trials, outcome.trial, outcome.attempt), SENT_BYTES)
    tail = tail_of(output)
    # the failure of a command already quotes its standard error
    if not tail or tail.rpartition("\n")[2] in outcome.message:
        return outcome
    return replace(outcome, message=f"{outcome.message}\nits output ends:\n{tail}")
