"""Checks shared by strategies: of hyperparameters, classes, and whether an arm may be chosen."""

import operator
from collections.abc import Sequence
from dataclasses import is_dataclass, replace
from typing import Any, Protocol

from bbkb.orchestrator.bandit.arrays import Indices
from bbkb.orchestrator.bandit.options import excerpt
from bbkb.orchestrator.bandit.pulls import Pulls
from bbkb.orchestrator.bandit.strategy import Choose, Decision, Pick, Wait

# the methods that a campaign requires of a strategy
CAMPAIGN_METHODS = ("init", "ask", "tell", "recorded", "restore")
METHODS = (*CAMPAIGN_METHODS, "posterior")  # that a strategy must have

# the reason of a `Wait` that ends a campaign
ALL_CHOSEN = "every arm was chosen once, and none may be evaluated twice"


class HasArms(Protocol):
    """The pulls and the set-aside arms of a state."""

    @property
    def pulls(self) -> Pulls:
        """The pulls of each of the A candidates."""

    @property
    def set_aside(self) -> Indices:
        """The arms that could not be evaluated."""


def require(strategy: object, name: str, rule: str, is_met: bool) -> None:
    """Raise ValueError with the field `name` and its value unless the rule `is_met`."""
    if not is_met:
        raise ValueError(f"strategy.{name} must be {rule}, got {excerpt(getattr(strategy, name))}")


def check_class(value: object, prefix: str = "", methods: Sequence[str] = METHODS) -> type[Any]:
    """Return `value`, a user's class of a strategy.

    Raises ValueError, with a message that begins with `prefix`, if it is not a dataclass with these
    `methods`.
    """
    if not isinstance(value, type):
        raise ValueError(f"{prefix}must name a class, got {excerpt(value)}")
    lacking = [method for method in methods if not callable(getattr(value, method, None))]
    if lacking:
        raise ValueError(f"{prefix}must have the methods {', '.join(methods)}; it lacks {', '.join(lacking)}")
    if not is_dataclass(value):
        raise ValueError(f"{prefix}must be a dataclass, whose fields are its options; add @dataclass to it")
    return value


def refusal(state: HasArms, limit: int) -> Wait | None:
    """Return the response of `ask` if no arm is left. Raises ValueError if `limit` < 1."""
    if limit < 1:
        raise ValueError(f"limit must be >= 1, got {limit}")
    return Wait("all arms were set aside") if len(state.set_aside) == len(state.pulls.counts) else None


def sequential_refusal(state: HasArms, pending: Sequence[int], limit: int) -> Wait | None:
    """Check like `refusal`, for strategies that pull one arm and wait for its reward."""
    return refusal(state, limit) or (Wait("one pull at a time: the last reward has not arrived") if pending else None)


def check_decision(decision: object, arms: int) -> Decision:
    """Return the result of a strategy's `ask`, with Python's numbers instead of NumPy's.

    Raises ValueError if it is neither Choose nor Wait, or if it chooses anything but one of the
    `arms`.
    """
    if not isinstance(decision, Choose | Wait):
        raise ValueError(f"ask must return Choose or Wait, got {excerpt(decision)}")
    reason = str(decision.reason or "")
    if isinstance(decision, Wait):
        return Wait(reason)
    return replace(decision, picks=tuple(_check_pick(pick, arms) for pick in decision.picks), reason=reason)


def _check_pick(pick: object, arms: int) -> Pick:
    try:
        if isinstance(pick, Pick):
            arm = operator.index(pick.arm)
            if pick.trial is not None or 0 <= arm < arms:
                mean, width, variance = map(float, (pick.mean, pick.width, pick.variance))
                return replace(pick, arm=arm, mean=mean, width=width, variance=variance)
    except (TypeError, ValueError):  # the same message for numbers of a wrong type
        pass
    raise ValueError(f"ask must pick candidates from 0 to {arms - 1}, got {excerpt(pick)}")
