"""The first events of a campaign's log."""

import hashlib
import time
from collections.abc import Sequence

from objectives.objective import Candidates
from orchestrator.campaign.events import BatchChosen, CampaignCreated, Event, ExistingTaken, PickedTrial
from orchestrator.settings.model import Settings


def first_events(
    settings: Settings,
    candidates: Candidates,
    objective: str,
    optimum: float | None = None,
    existing: ExistingTaken | None = None,
    enqueued: Sequence[int] = (),
) -> list[Event]:
    """Return the creation of a campaign, what was known before it, and its first trials.

    `objective` is what the objective says of itself, `enqueued` the arms that are evaluated first.
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
    )
    before = [] if existing is None else [existing]
    return [created, *before, *_choice_of_enqueued(created.time, candidates, enqueued)]


def digest(candidates: Candidates) -> str:
    """Return sha256 of features and parameters: equal for equal sets of candidates."""
    sha = hashlib.sha256(candidates.features.reshape(-1).data)  # not a copy as large as the candidates
    for name, column in candidates.columns.items():
        sha.update(name.encode())
        sha.update(column.tobytes() if column.dtype != object else repr(column.tolist()).encode())
    return sha.hexdigest()


def _choice_of_enqueued(time: float, candidates: Candidates, arms: Sequence[int]) -> list[BatchChosen]:
    """Return the choice of the enqueued `arms`; none without any."""
    picks = tuple(
        PickedTrial(trial=trial, arm=arm, parameters=candidates.parameters(arm)) for trial, arm in enumerate(arms)
    )
    reason, limit = "enqueued in the campaign file", len(picks)
    event = BatchChosen(time=time, round=0, picks=picks, reason=reason, seconds=0.0, limit=limit, is_enqueued=True)
    return [event] if picks else []
