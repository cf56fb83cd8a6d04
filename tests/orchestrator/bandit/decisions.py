"""Values narrowed to the type that a test expects; another type fails the test."""

from bbkb.orchestrator.bandit.strategy import Choose, Decision


def choice(decision: Decision) -> Choose:
    """`decision`, which must be a choice."""
    assert isinstance(decision, Choose), decision
    return decision


def arms_of(decision: Decision) -> list[int]:
    """The arms of `decision`, which must be a choice."""
    return [pick.arm for pick in choice(decision).picks]
