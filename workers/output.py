"""Keeps what one attempt prints, in the way that suits the process it runs in."""

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from workers.messages import Attempt, Outcome
from workers.output_files import OutputFile
from workers.process_output import process_output
from workers.thread_output import copy_of_thread


@dataclass(slots=True)
class Printed:
    """The output that an attempt printed."""

    # appends bytes to its output, such as those of a command; None where no output is kept
    write: Callable[[bytes], None] | None = None
    # the end of the output, known when the attempt is over, where the process does not share the
    # run's folder
    unshared_end: str = ""

    def add_to(self, outcome: Outcome) -> Outcome:
        """Return the outcome with the output that has to travel with it."""
        return replace(outcome, output=self.unshared_end) if self.unshared_end else outcome


@contextlib.contextmanager
def keep_output(attempt: Attempt, owns_process: bool) -> Iterator[Printed]:
    """Keep what is printed inside, where the attempt has a folder for it.

    Args:
        attempt: what runs inside.
        owns_process: whether the process runs nothing else meanwhile, so that its file descriptors
            are the attempt's.
    """
    if attempt.trials is None:
        yield Printed()
    elif owns_process:
        with _of_process(attempt, attempt.trials) as printed:
            yield printed
    else:
        file = OutputFile(attempt.trials, attempt.trial, attempt.attempt)
        with copy_of_thread(file):
            yield Printed(file.write)


@contextlib.contextmanager
def _of_process(attempt: Attempt, trials: Path) -> Iterator[Printed]:
    """Keep the output of this process. An evaluation runs without that where the system refuses
    it."""
    printed = Printed()
    with contextlib.ExitStack() as resources:
        try:
            output = process_output(trials)
            resources.enter_context(output.of(attempt.trial, attempt.attempt))
        except OSError as error:
            print(f"bbkb: the output of an evaluation cannot be kept: {error}", file=sys.stderr, flush=True)
            yield printed
            return
        printed.write = _print
        yield printed
    printed.unshared_end = output.unshared_end()


def _print(piece: bytes) -> None:
    os.write(1, piece)
