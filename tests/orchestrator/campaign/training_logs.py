"""Events of short campaigns whose trials report values at steps, and the states that they fold to."""

from typing import Any

from bbkb.orchestrator.campaign.events import (
    Event,
    ModelRefreshed,
    ReportsArrived,
    SessionOpened,
    TrialsContinued,
    TrialStopped,
)
from bbkb.orchestrator.campaign.state import CampaignState
from bbkb.orchestrator.campaign.trainings import Forecast
from tests.orchestrator.campaign.short_logs import batch, dispatch, fold, opening, refresh, settings_of
from tests.reported import reported

END = 10


def opened(steps: int | None, evaluations: int = 50, **changes: object) -> SessionOpened:
    settings = settings_of(evaluations, strategy={"mode": "async"})
    settings["budget"]["steps"] = steps
    settings["early_stopping"] = {"rule": "model", "after": 3, "continues": True, "last_step": END, **changes}
    return opening(settings)


def reports(trial: int, value: float, until: int, attempt: int = 1, first: int = 1) -> ReportsArrived:
    steps = range(first, until + 1)
    values = tuple(reported(step, value, trial, attempt) for step in steps)
    return ReportsArrived(time=1.0, reports=values)


def stop(trial: int, value: float, step: int) -> TrialStopped:
    return TrialStopped(
        time=1.0, trial=trial, attempt=1, value=value, step=step, started=0.0, finished=1.0, worker="w"
    )  # fmt: skip


def started(*values: float) -> list[Event]:
    """Trials 0, 1, … that have reported their values at the steps 1 to 4."""
    trials = range(len(values))
    return [
        batch(0, [10 + trial for trial in trials]),
        dispatch(*((trial, 1) for trial in trials)),
        *(reports(trial, value, 4) for trial, value in zip(trials, values, strict=True)),
    ]


def paused(*values: float, **rule: Any) -> CampaignState:
    return fold(opened(**rule), *started(*values), *(stop(trial, value, 4) for trial, value in enumerate(values)))


def continued(*trials: int, reason: Any = "promising") -> TrialsContinued:
    """The first attempts of these trials are continued."""
    return TrialsContinued(time=2.0, trials=trials, reason=reason)


def refreshed(*forecasts: Forecast) -> ModelRefreshed:
    return refresh(forecasts=forecasts)
