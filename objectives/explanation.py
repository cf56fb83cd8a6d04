"""A search space explained in plain lines: its parameters, their conditions, what is forbidden, how many arms."""

from objectives import coding
from objectives.conditions import wording
from objectives.objective import Candidates
from objectives.parameters import Parameter, conditions
from objectives.space import LARGEST_WHOLE_SET, SearchSpace


def explain(space: SearchSpace, candidates: Candidates) -> list[str]:
    """One line a parameter, one a forbidden clause, and one that says how many arms were made of how many."""
    lines = [f"{name}: {parameter_text(parameter)}" for name, parameter in space.parameters.items()]
    lines += [f"forbidden: {wording([clause])}" for clause in space.forbid]
    number = len(space.conditional)
    conditional = f", {number} of them conditional" if number else ""
    return [*lines, f"{len(space.parameters)} parameters{conditional}; {_arms(space, len(candidates))}"]


def parameter_text(parameter: Parameter) -> str:
    """What values a parameter takes, and when it exists."""
    when = conditions(parameter)
    return parameter.wording + (f"; only when {wording(when)}" if when else "")


def _arms(space: SearchSpace, made: int) -> str:
    if any(map(coding.is_real, space.parameters.values())):
        return f"{made} candidates drawn from infinitely many configurations"
    total = space.count(max(made, LARGEST_WHOLE_SET))
    if total == made:
        return f"all {made} configurations are candidates"
    known = f"more than {max(made, LARGEST_WHOLE_SET)}" if total is None else str(total)
    return f"{made} candidates drawn from {known} configurations"
