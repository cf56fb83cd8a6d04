"""Reports, as tests write them."""

from bbkb.workers.messages import Report


def reported(step: int, value: float, trial: int = 0, attempt: int = 1, **metrics: float) -> Report:
    """A report of a value and of further metrics at a step."""
    return Report(trial, attempt, step, {"value": value, **metrics})
