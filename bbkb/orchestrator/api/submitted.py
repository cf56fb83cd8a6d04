"""A handle of a campaign that runs in a separate process on a cluster, for the program that
submitted it."""

import time
from pathlib import Path
from typing import TYPE_CHECKING

from bbkb.orchestrator.api.result import Result, result_of
from bbkb.orchestrator.campaign.status import Status
from bbkb.orchestrator.store.runs import Run

if TYPE_CHECKING:  # it imports Ray
    from bbkb.orchestrator.running.coordinator.remote import RemoteSession

_LOOK_SECONDS = 1.0


class Submitted:
    """A running campaign. Its coordinator, a Ray actor, is detached, so the campaign survives the
    program that submitted it.

    `bbkb attach FOLDER` and `bbkb stop FOLDER` also work for it. Created by `Campaign.submit`.

    Args:
        run: the run.
        session: its session, in the coordinator.
    """

    def __init__(self, run: Run, session: "RemoteSession") -> None:
        self._run = run
        self._session = session

    @property
    def folder(self) -> Path:
        """The run's folder."""
        return self._run.folder

    def status(self) -> Status | None:
        """Return the status of the campaign; None until it has started."""
        return self._session.status()

    def stop(self, now: bool = False) -> None:
        """Stop the campaign; `bbkb resume` continues it.

        Args:
            now: cancel running evaluations instead of draining them.
        """
        self._session.stop(now)

    def wait(self, timeout: float | None = None) -> bool:
        """Return whether the campaign has ended.

        Args:
            timeout: the seconds to wait for the end; None: no limit.
        """
        deadline = float("inf") if timeout is None else time.monotonic() + timeout
        while not self._session.wait(min(_LOOK_SECONDS, max(0.0, deadline - time.monotonic()))):
            if time.monotonic() >= deadline:
                return False
        return True

    def result(self) -> Result:
        """Wait until the campaign has ended, and return its result. Raises the error that ended the
        campaign, if there was one."""
        self._session.result()
        return result_of(self._run)

    def __repr__(self) -> str:
        return f"<Submitted campaign in {self.folder}>"
