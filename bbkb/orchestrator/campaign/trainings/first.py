"""Short first trainings: the model sees a few steps of many trials before it continues any."""

import math
from typing import NamedTuple

LEAST_TRIALS = 8  # the least number of short first trainings, if there are any
# the share of a budget of steps that is divided among the short first trainings
_SHARE_OF_BUDGET = 0.12
# the number of short first trainings, as a share of a budget of evaluations
_SHARE_OF_EVALUATIONS = 0.4
# the length of each, as a share of a whole training, if there is no budget to divide
_SHARE_OF_TRAINING = 0.12
_SHARE_WITH_PAUSES = 1 / 8  # the same share if trials pause at ½, ¼, ⅛, … of a training


class FirstTrainings(NamedTuple):
    """The number of short first trainings, and the number of steps of each."""

    trials: int
    steps: int


NO_FIRST_TRAININGS = FirstTrainings(0, 1)


def first_trainings(
    last_step: int | None,
    evaluations: int,
    budget_steps: int | None,
    trials: int | None = None,
    steps: int | None = None,
) -> FirstTrainings:
    """Plan the short first trainings of a campaign.

    Args:
        last_step: the last step of a training; None if it is unknown.
        evaluations: the budget of evaluations.
        budget_steps: the budget of steps; None if only evaluations are counted.
        trials: the number of short trainings; None if the user has not set it.
        steps: the steps of each; None if the user has not set them.
    """
    if last_step is None:
        return NO_FIRST_TRAININGS
    whole = evaluations * _SHARE_OF_EVALUATIONS if budget_steps is None else budget_steps / last_step
    if trials is None:
        trials = max(LEAST_TRIALS, round(whole))
    each = _SHARE_OF_BUDGET * whole * last_step / max(1, trials)
    if steps is None:  # the pause (½, ¼, … of a training) that is nearest to `each` by ratio
        steps = math.ceil(last_step * 0.5 ** max(1, round(math.log2(last_step / each))))
    return FirstTrainings(trials, steps) if steps < last_step else NO_FIRST_TRAININGS


def first_steps_without_budget(last_step: int | None, pauses: bool) -> int:
    """Return the steps of a short first training in a search without a budget."""
    if pauses:
        return math.ceil((last_step or 1) * _SHARE_WITH_PAUSES)
    return max(1, round(_SHARE_OF_TRAINING * (last_step or 1)))
