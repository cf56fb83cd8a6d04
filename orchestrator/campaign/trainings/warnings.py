"""Warnings about trainings that early stopping cannot judge.

Either the reports do not fit the settings or the returned values, or the trainings do not continue
from their checkpoints.
"""

from dataclasses import dataclass

from orchestrator.campaign.goals import CampaignGoals
from orchestrator.campaign.trainings.curves import Trainings
from orchestrator.campaign.trainings.model_rule import TrainingRule
from orchestrator.wording import plural

_LEAST_FINISHED = 3  # with fewer finished trials there are no warnings about their reports
_MOST_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """The trainings of a campaign with early stopping: the input of the warnings."""

    trainings: Trainings
    rule: TrainingRule | None  # None if there is no model
    succeeded: int  # trials
    stopped: int  # trials
    goals: CampaignGoals


def training_warnings(observed: Observed) -> dict[str, str]:
    """Return the warnings about trainings, by kind."""
    by_kind = {
        "silent": _no_reports(observed),
        "last step": _other_last_step(observed),
        "unlike": _unlike_ends(observed),
        "restarted": _restarts(observed),
        "unreported": _unreported_objectives(observed),
    }
    return {kind: text for kind, text in by_kind.items() if text}


def _no_reports(observed: Observed) -> str:
    has_reports = observed.stopped or observed.trainings.whole.count
    if observed.succeeded < _LEAST_FINISHED or has_reports:
        return ""
    return (
        f"none of the {plural(observed.succeeded, 'finished trial')} reported a value, so early "
        "stopping stops none: a function calls report(value, step) with steps 1, 2, …, a command "
        "prints lines BBKB_REPORT step value"
    )


def _other_last_step(observed: Observed) -> str:
    """Return a warning if trainings end before or after the last step in the settings."""
    last_step = None if observed.rule is None else observed.rule.last_step
    trainings = observed.trainings
    whole = observed.trainings.whole
    if last_step is None:
        return ""
    remedy = "the model expects the final value there; set it to the last step of a complete training"
    if trainings.furthest_step > last_step:
        return (
            f"trials report steps up to {trainings.furthest_step}, and early_stopping.last_step is "
            f"{last_step}: {remedy}"
        )
    if whole.count >= _LEAST_FINISHED and whole.largest_step < last_step:
        return (
            f"{plural(whole.count, 'trial')} finished at step {whole.largest_step} or before, and "
            f"early_stopping.last_step is {last_step}: {remedy}, and report steps from 1 on. If the "
            "training library ends trainings itself, leave that out (early_stopping_rounds of XGBoost "
            "and LightGBM, the callbacks early_stopping or EarlyStopping)"
        )
    return ""


def _unlike_ends(observed: Observed) -> str:
    whole = observed.trainings.whole
    sign = observed.goals.objectives[0].sign
    newest = whole.newest_unlike
    if newest is None or whole.unlike < _LEAST_FINISHED or 2 * whole.unlike <= whole.count:
        return ""
    reported = sign * newest.reported
    returned = sign * newest.returned
    return (
        f"{whole.unlike} of {plural(whole.count, 'finished trial')} returned something unlike their "
        f"reports (trial {newest.trial}: last reported {reported:.6g}, returned {returned:.6g}): "
        "a trial must report the quantity that it returns, on its scale and in its direction"
    )


def _restarts(observed: Observed) -> str:
    """Return a warning about continued trials that restarted although they have checkpoints."""
    trials = sorted(observed.trainings.without_checkpoint)
    if not trials or observed.rule is None or not observed.rule.has_checkpoints:
        return ""
    shown = ", ".join(map(str, trials[:_MOST_SHOWN])) + (", …" if len(trials) > _MOST_SHOWN else "")
    return (
        f"{plural(len(trials), 'continued trial')} ({shown}) restarted at the first step: the "
        "checkpoint in the trial's folder is missing or was not read; repeated steps take "
        "time and provide no new information"
    )


def _unreported_objectives(observed: Observed) -> str:
    """Return a warning if trials do not report an objective, so a fixed rule stops none."""
    standings = observed.trainings.rungs.standings.values()
    if observed.rule is not None or observed.succeeded < _LEAST_FINISHED or not standings:
        return ""
    unknown = [
        objective.metric
        for index, objective in enumerate(observed.goals.objectives)
        if all(standing.rewards[index] is None for standing in standings)
    ]
    if not unknown:
        return ""
    return (
        f"trials do not report {' and '.join(unknown)}, which may still be the best at their ends, so "
        "early stopping stops none: report all objectives at each step, or use rule: model"
    )
