"""The first events of a campaign's log."""

import hashlib
import time
from collections.abc import Sequence

from objectives.objective import Candidates
from orchestrator.campaign.events import BatchChosen, CampaignCreated, Event, ExistingTaken, PickedTrial
from orchestrator.session.rules import rules_of
from orchestrator.settings.model import Settings


def first_events(
    settings: Settings,
    candidates: Candidates,
    objective: str,
    optimum: float | None = None,
    existing: ExistingTaken | None = None,
    enqueued: Sequence[int] = (),
) -> list[Event]:
    """Return the first events: the creation of the campaign, the `existing` results, and the choice
    of the `enqueued` arms.

    `objective` is the description that the objective gives of itself.
    """
    created = CampaignCreated(
        time=time.time(),
        name=settings.name,
        seed=settings.seed,
        arms=len(candidates),
        candidates_digest=digest(candidates),
        objective=objective,
        optimum=optimum,
        settings=settings.resolved(),
        rules=rules_of(settings),
    )
    events: list[Event] = [created] if existing is None else [created, existing]
    return [*events, _choice_of_enqueued(created.time, candidates, enqueued)] if enqueued else events


def digest(candidates: Candidates) -> str:
    """Return the SHA-256 digest of the candidates' features and parameters."""
    sha = hashlib.sha256(candidates.features.reshape(-1).data)  # avoids a copy of all candidates
    for name, column in candidates.columns.items():
        sha.update(name.encode())
        sha.update(column.tobytes() if column.dtype != object else repr(column.tolist()).encode())
    return sha.hexdigest()


def _choice_of_enqueued(time: float, candidates: Candidates, arms: Sequence[int]) -> BatchChosen:
    """Return the event that chooses the enqueued `arms`."""
    picks = tuple(
        PickedTrial(trial=trial, arm=arm, parameters=candidates.parameters(arm)) for trial, arm in enumerate(arms)
    )
    return BatchChosen(
        time=time,
        round=0,
        picks=picks,
        reason="enqueued in the campaign file",
        seconds=0.0,
        limit=len(picks),
        is_enqueued=True,
    )
