"""`on_event`: a command of the user's, run at the first failed evaluation of a session and at its end.

It runs in a separate thread. The campaign waits only at its end, and a command that fails is logged
and has no other effect.
"""

import json
import logging
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from bbkb.orchestrator.campaign.events import Event, SessionClosed, TrialFailed
from bbkb.orchestrator.campaign.status import Status
from bbkb.orchestrator.store.runs import Run

_LOGGER = logging.getLogger("bbkb.on_event")
SECONDS = 10.0  # the time-out of the command
_LONGEST = 500  # characters of a failure's message, and of the command's error output


@contextmanager
def commands(command: str | None, run: Run, status: Callable[[], Status]) -> Iterator[Callable[[Event], None]]:
    """Run the command while the body runs. Yields the function that receives every event."""
    if command is None:
        yield lambda _: None
        return
    told = set[str]()

    def tell(name: str, text: str) -> None:
        if name not in told:
            told.add(name)
            thread.submit(_run, command, run, name, text)

    def take(event: Event) -> None:
        if isinstance(event, TrialFailed):
            tell("failure", f"trial {event.trial} failed ({event.failure}): {event.message[:_LONGEST]}")
        elif isinstance(event, SessionClosed):
            now = status()
            best = "no value yet" if now.best.value is None else f"best {now.best.named} ({now.best.origin})"
            tell("ended", f"{event.outcome}: {event.reason}; {now.trials_text} done, {best}")

    with ThreadPoolExecutor(1, "on_event") as thread:
        try:
            yield take
        finally:
            tell("ended", "ended without an outcome, see run.log")


def _run(command: str, run: Run, name: str, text: str) -> None:
    """Run the command in the run's folder, with the event as JSON on its standard input and in the
    environment."""
    notice = {"event": name, "text": f"bbkb campaign {run.name}: {text}", "campaign": run.name, "run": str(run.folder)}
    try:
        process = subprocess.Popen(
            ["/bin/sh", "-c", command],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env={**os.environ, **{f"BBKB_{key.upper()}": value for key, value in notice.items()}},
            cwd=run.folder if run.folder.is_dir() else "/",
            start_new_session=True,
        )
        with process:
            try:
                _, errors = process.communicate(json.dumps(notice).encode(), timeout=SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                raise
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        _LOGGER.error("the command on_event failed for %r: %s", name, type(error).__name__)
        return
    if process.returncode:
        message = errors.decode(errors="replace").strip()[-_LONGEST:]
        _LOGGER.error("the command on_event ended with exit code %d for %r: %s", process.returncode, name, message)
