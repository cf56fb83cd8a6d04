"""What a person should know of a trial beside its numbers: broken constraints, early stops,
continuations."""

from orchestrator.campaign.training import stop_words
from orchestrator.history.fold import History
from orchestrator.history.rows import TrialRow
from orchestrator.wording import plural


def remark(history: History, row: TrialRow) -> str:
    """Return which constraints the result breaks, and how the training went; empty: nothing."""
    return "; ".join(filter(None, [broken_constraints(history, row), training(history, row)]))


def broken_constraints(history: History, row: TrialRow) -> str:
    """Return the constraints that the result breaks, with its numbers; empty: none."""
    if row.is_feasible is not False or row.value is None:
        return ""
    margins = history.goals.margins(row.value, row.metrics)
    broken = [
        f"{constraint.metric} is {row.metrics.get(constraint.metric, row.value):.6g} and must be {constraint.bounds}"
        for constraint, margin in zip(history.goals.constraints, margins, strict=True)
        if not margin >= 0.0
    ]
    return f"infeasible: {', '.join(broken)}"


def training(history: History, row: TrialRow) -> str:
    """Return whether and why this trial was stopped, continued or spared; empty: nothing."""
    facts = []
    if row.continuations:
        facts.append(f"continued {'once' if row.continuations == 1 else plural(row.continuations, 'time')}")
    rule = history.campaign.rules.training
    if row.has_restarted and rule is not None and rule.continues:
        facts.append("it began again at the first step when it was continued")
    if row.status == "stopped":
        word, why = stop_words(row.stop_cause)
        facts.append(f"{'then ' if facts else ''}{word} at step {row.stopped_at}{why}")
    if row.has_no_checkpoint:
        facts.append("its checkpoint was removed")
    if rule is not None and rule.is_witness(row.trial) and row.reports and row.status != "stopped":
        facts.append("a witness: no comparison and no forecast stops it")
    return "; ".join(facts)
