"""Describes a search space as lines of text: parameters, conditions, forbidden clauses, number of
arms."""

from bbkb.objectives import coding
from bbkb.objectives.conditions import wording
from bbkb.objectives.objective import Candidates
from bbkb.objectives.parameters import Parameter, conditions
from bbkb.objectives.space import LARGEST_WHOLE_SET, SearchSpace


def explain(space: SearchSpace, candidates: Candidates) -> list[str]:
    """Return a line for each parameter and forbidden clause, and one with the number of arms."""
    lines = [f"{name}: {parameter_text(parameter)}" for name, parameter in space.parameters.items()]
    lines += [f"forbidden: {wording([clause])}" for clause in space.forbid]
    number = len(space.conditional)
    conditional = f", {number} of them conditional" if number else ""
    noun = "parameter" if len(space.parameters) == 1 else "parameters"
    return [*lines, f"{len(space.parameters)} {noun}{conditional}; {_arms(space, len(candidates))}"]


def parameter_text(parameter: Parameter) -> str:
    """Return the values of a parameter, and its condition."""
    when = conditions(parameter)
    return parameter.wording + (f"; only when {wording(when)}" if when else "")


def _arms(space: SearchSpace, count: int) -> str:
    if any(map(coding.is_real, space.parameters.values())):
        return f"{count} candidates drawn from infinitely many configurations"
    total = space.count(max(count, LARGEST_WHOLE_SET))
    if total == count:
        return f"all {count} configurations are candidates"
    total_text = f"more than {max(count, LARGEST_WHOLE_SET)}" if total is None else str(total)
    return f"{count} candidates drawn from {total_text} configurations"
