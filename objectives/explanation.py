"""A search space explained in plain lines: its parameters, their conditions, what is forbidden, how many arms."""

from objectives import coding
from objectives.conditions import wording
from objectives.objective import Candidates
from objectives.parameters import Choice, Constant, Ordered, Parameter, Range, conditions
from objectives.space import LARGEST_WHOLE_SET, SearchSpace

_SHOWN = 8  # values listed one by one


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
    return _values(parameter) + (f"; only when {wording(when)}" if when else "")


def _values(parameter: Parameter) -> str:
    match parameter:
        case Range():
            kind = "integers" if parameter.integer else "real numbers"
            step = f" in steps of {parameter.step:g}" if parameter.step is not None else ""
            scale = ", logarithmic" if parameter.log else ""
            return f"{kind} from {parameter.low:.12g} to {parameter.high:.12g}{step}{scale}"
        case Choice():
            weights = "" if parameter.weights is None else f", drawn with weights {_list_values(parameter.weights)}"
            return f"one of {_list_values(parameter.choices)}{weights}"
        case Ordered():
            return f"one of {_list_values(parameter.ordered)}, in this order"
        case Constant():
            return f"always {parameter.constant}"


def _list_values(values: tuple[object, ...]) -> str:
    rest = f", … ({len(values)} in all)" if len(values) > _SHOWN else ""
    return ", ".join(map(str, values[:_SHOWN])) + rest


def _arms(space: SearchSpace, made: int) -> str:
    if any(map(coding.is_real, space.parameters.values())):
        return f"{made} candidates drawn from infinitely many configurations"
    total = space.count(max(made, LARGEST_WHOLE_SET))
    if total == made:
        return f"all {made} configurations are candidates"
    known = f"more than {max(made, LARGEST_WHOLE_SET)}" if total is None else str(total)
    return f"{made} candidates drawn from {known} configurations"
