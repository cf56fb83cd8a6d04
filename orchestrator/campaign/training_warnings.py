"""Warnings about trainings that early stopping cannot judge: their reports do not fit the settings or
what they return, or they do not continue from their checkpoints."""

from orchestrator.campaign.state import CampaignState
from orchestrator.wording import plural

_LEAST_FINISHED = 3  # trials that finished, below which nothing is said of their reports


def training_warnings(state: CampaignState) -> dict[str, str]:
    """Return what is wrong with the trainings of a campaign with early stopping, by kind."""
    if state.rules.stopping is None:
        return {}
    by_kind = {
        "silent": _no_reports(state),
        "last step": _other_last_step(state),
        "unlike": _unlike_ends(state),
        "restarted": _restarts(state),
    }
    return {kind: text for kind, text in by_kind.items() if text}


def _no_reports(state: CampaignState) -> str:
    if state.totals.succeeded < _LEAST_FINISHED or state.totals.stopped or state.training.reporting:
        return ""
    return (
        f"none of the {plural(state.totals.succeeded, 'finished trial')} reported a value, so early stopping stops "
        "none: a function calls report(value, step) with steps 1, 2, …, a command prints lines BBKB_REPORT step value"
    )


def _other_last_step(state: CampaignState) -> str:
    """Return a warning when trainings end beyond or before the step that the settings give."""
    rule, training = state.rules.training, state.training
    if rule is None or rule.last_step is None:
        return ""
    if training.furthest_step > rule.last_step:
        return (
            f"trials report steps up to {training.furthest_step}, and early_stopping.last_step is {rule.last_step}: "
            "the model expects the final value there; give the last step that a whole training reports"
        )
    if training.reporting >= _LEAST_FINISHED and training.largest_step < rule.last_step:
        return (
            f"{plural(training.reporting, 'trial')} finished at step {training.largest_step} or before, and "
            f"early_stopping.last_step is {rule.last_step}: the model expects the final value there; give the last "
            "step that a whole training reports, and report steps from 1 on"
        )
    return ""


def _unlike_ends(state: CampaignState) -> str:
    training, sign, newest = state.training, state.rules.sign, state.training.newest_unlike
    if newest is None or training.unlike < _LEAST_FINISHED or 2 * training.unlike <= training.reporting:
        return ""
    values = f"last reported {sign * newest.reported:.6g}, returned {sign * newest.returned:.6g}"
    return (
        f"{training.unlike} of {plural(training.reporting, 'finished trial')} returned something unlike their "
        f"reports (trial {newest.trial}: {values}): "
        "a trial must report the quantity that it returns, on its scale and in its direction"
    )


def _restarts(state: CampaignState) -> str:
    """Return continued trials that began again; empty when there are none."""
    rule, began = state.rules.training, sorted(state.training.restarted)
    if not began or rule is None or not rule.continues:
        return ""
    shown = ", ".join(map(str, began[:5])) + (", …" if len(began) > 5 else "")
    return (
        f"{plural(len(began), 'continued trial')} ({shown}) began again at the first step: the checkpoint in the "
        "trial's folder is missing or was not read; repeated steps take their time and teach nothing"
    )
