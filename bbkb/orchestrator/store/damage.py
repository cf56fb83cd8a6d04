"""Damage of a run's folder that SQLite cannot see: a lost campaign file, and a log without its end.

The last events of a killed session may exist only in `campaign.sqlite-wal`. Without that file,
SQLite opens an older log, which is consistent. Other files in the folder reveal the loss.
"""

from typing import TYPE_CHECKING

from bbkb.orchestrator.settings import file as campaign_file
from bbkb.orchestrator.store.runs import Run, read_provenance, write_provenance
from bbkb.workers.output_files import last_trial

if TYPE_CHECKING:  # it imports SQLAlchemy
    from bbkb.orchestrator.store.event_store import EventStore

_SESSIONS = "sessions"  # the key of the provenance with the number of claims


def missing_settings(run: Run) -> str:
    """Return a warning if the run has lost its campaign file; else an empty text."""
    if campaign_file.has_content(run.settings_file):
        return ""
    return f"{run.settings_file} is missing or empty: using the settings that the log recorded"


def record_sessions(run: Run, sessions: int) -> None:
    """Record the number of claims of the campaign outside of its log. Raises RunError."""
    if provenance := read_provenance(run.folder):
        write_provenance(run, {**provenance, _SESSIONS: sessions})


def lost_sessions(run: Run, store: "EventStore") -> str:
    """Return a description of sessions that the log has lost; empty if it has lost none."""
    recorded = read_provenance(run.folder).get(_SESSIONS)
    in_log = store.holding(run.name).epoch
    if not isinstance(recorded, int) or recorded <= in_log:
        return ""
    return (
        f"the log of {run.folder} has lost its end: provenance.json counts {recorded} sessions, and "
        f'the log has {in_log}. {_restore(run)}, set "sessions" in provenance.json to {in_log}'
    )


def lost_trials(run: Run, chosen: int) -> str:
    """Return a description of the trials that a log of `chosen` trials has lost; empty if none."""
    last = last_trial(run.trials)
    if last is None or last < chosen:
        return ""
    return (
        f"the log of {run.folder} has lost its end: {run.trials} has files of trial {last}, and the "
        f"log has {chosen} trials. {_restore(run)}, move the files of trials from {chosen} on away"
    )


def _restore(run: Run) -> str:
    """Return the common beginning of the remedies."""
    files = "campaign.sqlite and campaign.sqlite-wal" if run.has_own_log else "the database"
    return f"Restore {files} of the same time; or, to continue without the lost results"
