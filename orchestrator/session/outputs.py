"""What attempts print, on the side of the process that runs the campaign: it keeps what a worker
could not keep itself, and quotes the end of the output in the message of a failure."""

import logging
from dataclasses import replace
from pathlib import Path

from orchestrator.store.runs import Run
from workers.messages import Failure, FailureKind, Outcome
from workers.output_files import SENT_BYTES, OutputFile, output_file, read_end, tail_of
from workers.process_output import prepare_folder, recover, remove_folder

_LOGGER = logging.getLogger("bbkb.session")
_REPORTED_BY_WORKER = FailureKind.ERROR, FailureKind.INVALID_VALUE  # others may be due to the end of its process


def prepare_outputs(run: Run) -> Path | None:
    """Return the run's folder of trials, ready for the output of its attempts; None, with a
    warning, when it cannot be written."""
    try:
        prepare_folder(run.trials)
    except OSError as error:
        _LOGGER.warning("what evaluations print is not kept: %s", error)
        return None
    return run.trials


def remove_outputs(trials: Path | None) -> None:
    """Remove the empty files of workers, all of which have ended."""
    if trials is None:
        return
    try:
        remove_folder(trials)
    except OSError as error:
        _LOGGER.warning("%s cannot be tidied: %s", trials, error)


def with_output(outcome: Outcome, trials: Path | None) -> Outcome:
    """Return the outcome, a failure with the end of its attempt's output in the message.

    Output that came with the outcome is written into the run's folder, and that of a process that
    has died is moved to its place there.

    Args:
        outcome: what an executor gave.
        trials: the run's folder of trials; None where no output is kept.
    """
    if trials is None:
        return outcome
    try:
        return _with_output(outcome, trials)
    except OSError as error:
        _LOGGER.warning("the output of trial %d is not kept: %s", outcome.trial, error)
        return outcome


def _with_output(outcome: Outcome, trials: Path) -> Outcome:
    if outcome.output:
        file = OutputFile(trials, outcome.trial, outcome.attempt)
        file.write(outcome.output.encode())
        file.close()
    if not isinstance(outcome, Failure):
        return outcome
    if outcome.kind not in _REPORTED_BY_WORKER:
        recover(trials, outcome.trial, outcome.attempt)
    tail = tail_of(read_end(output_file(trials, outcome.trial, outcome.attempt), SENT_BYTES))
    if not tail or tail.rpartition("\n")[2] in outcome.message:  # a command's failure quotes its standard error
        return outcome
    return replace(outcome, message=f"{outcome.message}\nits output ends:\n{tail}")
