"""Remarks about a trial for display: violated constraints, early stops and continuations."""

from collections.abc import Iterator

from bbkb.orchestrator.campaign.stops import stop_words
from bbkb.orchestrator.history.fold import History
from bbkb.orchestrator.history.rows import TrialRow
from bbkb.orchestrator.wording import plural


def remark(history: History, row: TrialRow) -> str:
    """Return the violated constraints and the course of the training; may be empty."""
    remarks = [broken_constraints(history, row), training_remark(history, row)]
    return "; ".join(filter(None, remarks))


def broken_constraints(history: History, row: TrialRow) -> str:
    """Return the constraints that the result violates, with its metrics; may be empty."""
    if row.is_feasible is not False or row.value is None:
        return ""
    margins = history.goals.margins(row.value, row.metrics)
    broken = [
        f"{constraint.metric} is {row.metrics.get(constraint.metric, row.value):.6g} and must be {constraint.bounds}"
        for constraint, margin in zip(history.goals.constraints, margins, strict=True)
        if not margin >= 0.0
    ]
    return f"infeasible: {', '.join(broken)}"


def training_remark(history: History, row: TrialRow) -> str:
    """Return whether and why the trial was stopped, continued or exempted; may be empty."""
    return "; ".join(_training_facts(history, row))


def _training_facts(history: History, row: TrialRow) -> Iterator[str]:
    training = row.training
    count = training.continuations
    is_stopped = row.status == "stopped"
    if row.pick.starts_from is not None:
        origin, step = row.pick.starts_from
        yield f"starts from trial {origin} at step {step}"
    if count:
        yield "continued once" if count == 1 else f"continued {plural(count, 'time')}"
    if training.has_restarted and history.campaign.settings.has_checkpoints:
        yield "it restarted at the first step when it was continued"
    if is_stopped:
        word, cause = stop_words(training.stop_cause)
        yield f"{'then ' if count else ''}{word} at step {training.stopped_at}{cause}"
    if training.has_no_checkpoint:
        yield "its checkpoint was removed"
    if training.reports and not is_stopped and _is_witness(history, row):
        yield "a witness: no comparison and no forecast stops it"


def _is_witness(history: History, row: TrialRow) -> bool:
    rule = history.campaign.settings.training
    return rule is not None and rule.is_witness(row.trial)
