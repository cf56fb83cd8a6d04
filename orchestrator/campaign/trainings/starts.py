"""The step of a trial's first pause, given how well values at pauses predict the final one."""

from collections.abc import Mapping

from orchestrator.campaign.trainings.rungs import StoppingRule

# the least correlation between the values at a reliable pause and the final ones
LEAST_RELIABILITY = 1 / 3
# the share of the steps so far that trials may use on their way to the first pause
SHARE_OF_STARTS = 1 / 3
# the largest share if the first pauses are not reliable, so that the values there tell little
LARGEST_SHARE_OF_STARTS = 1 / 2


def first_reliable_pause(rule: StoppingRule, last_step: int, reliability: Mapping[int, float]) -> int:
    """Return the step of the first reliable pause of `rule`; `last_step` if no pause is reliable.

    Args:
        rule: the pauses.
        last_step: the end of a training.
        reliability: step → correlation; a pause that it does not contain counts as reliable.
    """
    pause = rule.step_of_next_rung(0)
    while pause < last_step and reliability.get(pause, 1.0) < LEAST_RELIABILITY:
        pause = rule.step_of_next_rung(pause)
    return min(pause, last_step)
