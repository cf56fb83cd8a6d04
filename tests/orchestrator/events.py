"""Events of short campaigns, written by hand, with the settings of files that have only the sections a test needs,
and the states that they fold to. The last part has trials that report values at steps."""

import math
from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter

from bbkb.orchestrator.campaign.events import (
    BatchChosen,
    CampaignCreated,
    Event,
    ExistingTaken,
    ModelRefreshed,
    PickedTrial,
    ReportsArrived,
    SessionClosed,
    SessionOpened,
    SessionOutcome,
    TrialFailed,
    TrialsContinued,
    TrialsDispatched,
    TrialStopped,
    TrialSucceeded,
)
from bbkb.orchestrator.campaign.settings import Settings
from bbkb.orchestrator.campaign.state import CampaignState
from bbkb.orchestrator.campaign.state import ends_trial as state_ends_trial
from bbkb.orchestrator.campaign.trainings import Forecast
from bbkb.orchestrator.campaign.transitions import apply
from bbkb.workers.messages import FailureKind
from tests.reported import reported

END = 10  # the last step of a training
_ADAPTER = TypeAdapter(Settings)


def settings_from(tree: Mapping[str, Any]) -> Settings:
    """Return the settings of plain values that may lack sections."""
    strategy = {"name": "bbkb", "refresh_growth": math.inf, **tree.get("strategy", {})}
    return _ADAPTER.validate_python({"name": "c", "budget": {"evaluations": 10}, **tree, "strategy": strategy})


def settings_of(evaluations: int = 10, **changes: Any) -> dict[str, Any]:
    workers = changes.pop("workers", {})
    executor = "ray" if "count" in workers else "inline"
    return {
        "objective": {"direction": changes.pop("direction", "maximize")},
        "budget": {
            "evaluations": evaluations,
            "hours": changes.pop("hours", None),
            "target": changes.pop("target", None),
        },
        "workers": {"retries": changes.pop("retries", 2), "executor": executor, **workers},
        "strategy": changes.pop("strategy", {}),
    }


def session(slots: int = 2, time: float = 0.0, epoch: int = 1, **changes: Any) -> SessionOpened:
    return opening(settings_of(**changes), slots, time, epoch)


def closed(number: int) -> SessionClosed:
    return SessionClosed(time=float(number), outcome=SessionOutcome.FINISHED, reason=f"number {number}")


def created(settings: Mapping[str, Any], **fields: Any) -> CampaignCreated:
    """The creation of a campaign with these settings."""
    defaults: dict[str, Any] = {"time": 0.0, "arms": 1, "candidates_digest": "", "objective": "", "optimum": None}
    fields = defaults | fields
    return CampaignCreated(settings=settings_from(settings), **fields)


def opening(
    settings: Mapping[str, Any],
    slots: int = 16,
    time: float = 0.0,
    epoch: int = 1,
    executor: str = "inline",
) -> SessionOpened:
    """The opening of a session with these settings, on `executor` if they name none."""
    workers = {"executor": executor, **settings.get("workers", {})}
    return SessionOpened(time=time, epoch=epoch, slots=slots, settings=settings_from({**settings, "workers": workers}))


def batch(first: int, arms: list[int], time: float = 0.0, reason: str = "drift budget", **fields: Any) -> BatchChosen:
    picks = tuple(
        PickedTrial(trial=first + i, arm=arm, parameters={}, mean=0.0, width=1.0, variance=1.0)
        for i, arm in enumerate(arms)
    )
    return BatchChosen(time=time, round=0, picks=picks, reason=reason, seconds=0.0, **fields)


def dispatch(*attempts: tuple[int, int], time: float = 0.0) -> TrialsDispatched:
    return TrialsDispatched(time=time, attempts=attempts)


def success(trial: int, value: float = 1.0, attempt: int = 1, time: float = 1.0) -> TrialSucceeded:
    return TrialSucceeded(time=time, trial=trial, attempt=attempt, value=value, started=0.0, finished=time, worker="w")


def failure(trial: int, kind: FailureKind, is_final_: bool, attempt: int = 1, time: float = 1.0) -> TrialFailed:
    return TrialFailed(
        time=time, trial=trial, attempt=attempt, failure=kind, message="why", is_final=is_final_,
        started=0.0, finished=time, worker="w",
    )  # fmt: skip


def ends_trial(state: CampaignState, trial: int, kind: FailureKind, attempt: int = 1, time: float = 1.0) -> bool:
    """Whether no further attempt would follow such a failure."""
    return state_ends_trial(state, failure(trial, kind, True, attempt, time))


def fail(state: CampaignState, trial: int, kind: FailureKind, attempt: int = 1, time: float = 1.0) -> CampaignState:
    """Return the state after such a failure, which is final if the campaign's rules allow no
    retry."""
    return apply(state, failure(trial, kind, ends_trial(state, trial, kind, attempt, time), attempt, time))


def fold(*events: Event) -> CampaignState:
    return fold_from(CampaignState(), *events)


def fold_from(state: CampaignState, *events: Event) -> CampaignState:
    for event in events:
        state = apply(state, event)
    return state


def existing_data(*values: float) -> ExistingTaken:
    return ExistingTaken(
        time=0.0, source="t.csv", arms=tuple(range(len(values))), values=values, left_out=("row 1",) * 3
    )


def asynchronous(*events: Event, slots: int = 2, evaluations: int = 20, **strategy: Any) -> CampaignState:
    options = {"mode": "async", **strategy}
    return fold(session(slots=slots, evaluations=evaluations, strategy=options), *events)


def refresh(*trials: int, time: float = 2.0, round_: int = 1, **fields: Any) -> ModelRefreshed:
    return ModelRefreshed(
        time=time, round=round_, trials=trials, dictionary_size=1, record={}, seconds=0.0, **fields
    )  # fmt: skip


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
