"""The search space of a campaign file: `space`, `forbid` and `enqueue`."""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bbkb.objectives.errors import meaning
from bbkb.objectives.objective import ObjectiveError
from bbkb.objectives.parameters import (
    PLUS,
    Clause,
    Parameter,
    Range,
    as_levels,
    clauses_of,
    conditions,
    has_prior,
    plain_value,
    with_default,
)
from bbkb.objectives.space import SearchSpace, mistakes
from bbkb.orchestrator.bandit.strategy import Informed
from bbkb.orchestrator.campaign.settings import PARAMETERS, Configuration, parameter_kind
from bbkb.orchestrator.settings.mistakes import Refusal, RefusalError, align, excerpt
from bbkb.orchestrator.settings.options import as_mapping, build
from bbkb.orchestrator.yaml_file import Plain

REPEAT = "repeat"
MOST_REPEATS = 100
_STREAM = 5  # a random stream of the campaign; see `engine.engine`
_NAME = re.compile(r"^[^\W\d][\w.:-]*$")


def build_space(space: object) -> dict[str, Parameter]:
    """Return the parameters of a search space by name. Raises RefusalError."""
    parameters: dict[str, Parameter] = {}
    # name of a parameter → its key in the space; different in a repeated block
    keys: dict[str, str] = {}
    problems: list[Refusal] = []
    entries = as_mapping(space, "{learning_rate: {low: 0, high: 1}}")
    for name, options in entries.items():
        if not _NAME.match(name):
            problems.append(
                Refusal((name,), "must be named by letters, digits and _ . : -, not beginning with a digit")
            )
        try:
            if isinstance(options, Mapping) and REPEAT in options:
                added = _repeat_block(name, options, entries)
            else:
                added = {name: _build_parameter(options)}
        except RefusalError as error:
            problems += [problem.below(name) for problem in error.problems]
            continue
        problems += [
            Refusal((name,), f"must not name a parameter {same}: {keys[same]} names one so already; rename one of them")
            for same in added
            if same in keys
        ]
        keys |= dict.fromkeys(added, name)
        parameters |= added
    if problems:
        raise RefusalError(problems)
    return parameters


def build_forbid(forbid: object) -> tuple[Clause, ...]:
    """Return the forbidden clauses of a search space. Raises RefusalError."""
    if not isinstance(forbid, list | tuple):
        raise RefusalError([Refusal((), "must be a list such as [{model: svm, kernel: poly}]", excerpt(forbid))])
    problems: list[Refusal] = []
    clauses: list[Clause] = []
    for number, clause in enumerate(forbid):
        try:
            clauses += clauses_of([clause])
        except ValueError as error:
            problems.append(Refusal((number,), f": {error}"))
    if problems:
        raise RefusalError(problems)
    return tuple(clauses)


def read_space(file: str, folder: Path) -> tuple[Plain, list[Plain]]:
    """Return a ConfigSpace file's `space` and `forbid`, below `folder`. Raises RefusalError."""
    try:
        from bbkb.objectives.configspace_file import read_configspace  # only if a file names one

        return read_configspace(folder / Path(file).expanduser())
    except ModuleNotFoundError:
        install = 'pip install "ConfigSpace>=1.2.1,<2"'
        raise RefusalError([Refusal((), f"needs ConfigSpace, which reads {file}: {install}")]) from None
    except ObjectiveError as error:
        raise RefusalError([Refusal((), f": {error}")]) from error


def build_enqueue(enqueue: object) -> tuple[Configuration, ...]:
    """Return the configurations to be evaluated first. Raises RefusalError."""
    if not isinstance(enqueue, list | tuple):
        raise RefusalError([Refusal((), "must be a list such as [{learning_rate: 0.1}]", excerpt(enqueue))])
    wrong: list[Refusal] = []
    plain: list[Configuration] = []
    for number, configuration in enumerate(enqueue):
        if not isinstance(configuration, Mapping) or not configuration:
            wrong.append(Refusal((number,), "must be a mapping of parameters to values", excerpt(configuration)))
            continue
        try:
            plain.append({str(name): plain_value(f"{name} must be", value) for name, value in configuration.items()})
        except ValueError as error:
            wrong.append(Refusal((number,), f": {error}"))
    if wrong:
        raise RefusalError(wrong)
    return tuple(plain)


def completed_enqueue(
    space: SearchSpace, enqueue: Sequence[Configuration], seed: int, has_known_results: bool = False
) -> tuple[tuple[Configuration, ...], list[Refusal]]:
    """Return the configurations, with omitted parameters drawn from the campaign's seed, and the
    mistakes in those that do not belong to the space or cannot be completed. The last one is that of the
    parameters' defaults, if there are any and no results are known before the search."""
    completed: list[Configuration] = []
    problems = []
    for number, configuration in enumerate(enqueue):
        try:
            levels = as_levels(space.parameters, configuration)
            completed.append(space.complete(levels, np.random.default_rng([seed, _STREAM, number])))
        except ObjectiveError as error:
            problems.append(align(("enqueue", number), str(error), configuration))
    if with_default(space.parameters) and not has_known_results:
        try:
            first = space.first
        except ObjectiveError as error:
            return tuple(completed), [*problems, align(("forbid",), str(error))]
        if first is not None and first not in completed:
            completed.append(first)
    return tuple(completed), problems


def space_problems(space: Mapping[str, Parameter], forbid: tuple[Clause, ...]) -> list[Refusal]:
    """Return conflicts between parameters and forbidden clauses."""
    problems = [Refusal(mistake.keys, mistake.rule) for mistake in mistakes(space, forbid)]
    if problems or not space:
        return problems or [Refusal(("forbid",), "needs a space: its clauses speak of parameters")] * bool(forbid)
    try:
        SearchSpace(space, forbid)
    except ObjectiveError as error:
        return [align(("space",), str(error))]
    return problems


def prior_problems(space: Mapping[str, Parameter], strategy: object) -> list[Refusal]:
    """Return a mistake if a prior is given and the strategy does not use priors."""
    if isinstance(strategy, Informed) and strategy.takes_prior:
        return []
    rule = "needs the strategy bbkb with its default preset: this one does not use it"
    return [
        Refusal(("space", name, "prior"), rule) for name, parameter in space.items() if has_prior({name: parameter})
    ]


def _build_parameter(options: object) -> Parameter:
    if isinstance(options, Parameter):
        return options
    example = "{low: 0, high: 1}"
    if isinstance(options, list | tuple):  # two ordered numbers may be a range or choices
        are_numbers = all(isinstance(option, int | float) and not isinstance(option, bool) for option in options)
        is_range = len(options) == 2 and are_numbers and options[0] < options[1]
        meant = f"{{low: {options[0]}, high: {options[1]}}} or " if is_range else ""
        example = f"{meant}{{choices: {excerpt(options)}}}"
    fields = as_mapping(options, example)
    try:
        kind = parameter_kind(fields)
    except ValueError as error:
        renamed = [f"{right} instead of {key}" for key in fields if (right := meaning(key, [*PARAMETERS])) is not None]
        hint = f" (write {' and '.join(renamed)})" if renamed else ""
        raise RefusalError([Refusal((), f"{error}{hint}", excerpt(options))]) from None
    when = fields.pop("when", None)
    if kind is Range and bool in map(type, (fields.get("low"), fields.get("high"))):
        rule = "must have numbers as low and high, or choices: [false, true]"
        raise RefusalError([Refusal((), rule, excerpt(options))])
    parameter: Parameter = build(kind, fields)
    if when is None:
        return parameter
    # not checked by pydantic, which would report a reason for each member of the union
    try:
        return dataclasses.replace(parameter, when=clauses_of(when))
    except ValueError as error:
        raise RefusalError([Refusal(("when",), f": {error}")]) from error


def _repeat_block(name: str, options: Mapping[str, object], written: Mapping[str, object]) -> dict[str, Parameter]:
    """Return the parameters of the block `{repeat: n_layers, space: {units: …}}` by name,
    `layer_1_units`, …. Those of repetition i exist if `n_layers` is at least i."""
    if options.keys() != {REPEAT, "space"}:
        raise RefusalError(
            [Refusal((), f"must have {REPEAT} and space only: {{repeat: n_layers, space: {{units: …}}}}")]
        )
    count = str(options[REPEAT])
    counted = written.get(count)
    number = _build_parameter(counted) if isinstance(counted, Mapping | Parameter) else None
    if not (isinstance(number, Range) and number.integer and number.low >= 0 and number.high <= MOST_REPEATS):
        rule = f"must name an integer parameter of the space with low >= 0 and high <= {MOST_REPEATS}"
        raise RefusalError([Refusal((REPEAT,), rule, count)])
    try:
        block = build_space(options["space"])
    except RefusalError as error:
        raise RefusalError(problem.below("space") for problem in error.problems) from None
    for inner, parameter in block.items():
        if any(count in clause for clause in conditions(parameter)):
            rule = f"must not name {count}, by which the block is repeated"
            raise RefusalError([Refusal(("space", inner, "when"), rule)])
    return {
        f"{name}_{place}_{inner}": dataclasses.replace(
            parameter, when=tuple(_of_place(clause, f"{name}_{place}_", block, count, place) for clause in clauses)
        )
        for place in range(1, int(number.high) + 1)
        for inner, parameter in block.items()
        for clauses in [conditions(parameter) or ({},)]
    }


def _of_place(clause: Clause, prefix: str, block: Mapping[str, Parameter], count: str, place: int) -> Clause:
    """Return a block's condition for the repetition `place`, with `prefix` before names."""

    def with_prefix(word: object) -> object:
        words = PLUS.join(f"{prefix}{each}" if each in block else each for each in str(word).split(PLUS))
        return words if isinstance(word, str) else word

    renamed: dict[str, Any] = {
        str(with_prefix(name)): {key: with_prefix(bound) for key, bound in test.items()}
        if isinstance(test, Mapping)
        else test
        for name, test in clause.items()
    }
    return clauses_of([{**renamed, count: {"at_least": place}}])[0]
