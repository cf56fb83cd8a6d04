"""The messages when a campaign file is wrong: place, rule, value and remedy."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import pytest
from pydantic import TypeAdapter, ValidationError

from bbkb.objectives.errors import suggestion
from bbkb.objectives.objective import ObjectiveError
from bbkb.orchestrator.campaign.settings import plain
from bbkb.orchestrator.errors import ConfigError, UserError
from bbkb.orchestrator.settings.loading import from_mapping, load, naming_places
from bbkb.orchestrator.settings.mistakes import (
    Refusal,
    config_error,
    describe,
    excerpt,
    unknown_key,
)
from bbkb.orchestrator.yaml_file import Document, Keys, write
from bbkb.workers.executor import ExecutorName
from tests.orchestrator.settings.small import HEAD, SMALL, ErrorLines, cases


@dataclass(frozen=True)
class _Inner:
    size: float | tuple[float, ...] | None = None


@dataclass(frozen=True)
class _Outer:
    inner: _Inner
    kind: Literal["a", "b"] = "a"


def _problems_of(tree: Mapping[str, Any]) -> list[str]:
    with pytest.raises(ValidationError) as error:
        TypeAdapter(_Outer).validate_python(tree)
    return [str(problem) for problem in describe(error.value, tree, _Outer)]


def test_list_with_two_wrong_entries_has_two_mistakes() -> None:
    assert _problems_of({"inner": {"size": ["x", "y"]}}) == [
        'inner.size.0 must be a number, got "x"',
        'inner.size.1 must be a number, got "y"',
    ]


def test_lines_are_in_the_order_of_the_file_without_repetitions() -> None:
    places: dict[Keys, str] = {("a",): "f:1", ("b",): "f:2"}
    mistakes = [Refusal(("b",), "is odd"), Refusal(("a",), "is odd"), Refusal(("b",), "is odd")]
    error = config_error(Document({"a": 1, "b": 2}, places, "f"), mistakes)
    assert str(error).splitlines() == ["f:1: a is odd", "f:2: b is odd"]


def test_suggestions_name_similar_words_or_all() -> None:
    assert suggestion("budgett", ["budget", "seed"]) == "did you mean 'budget'?"
    assert suggestion("zzz", ["budget", "seed"]) == "valid names: budget, seed"


def test_synonym_is_reported_with_the_right_word() -> None:
    @dataclass
    class Sense:
        direction: Literal["maximize", "minimize"]

    for word, meant in (("min", "minimize"), ("max", "maximize"), ("minimise", "minimize")):
        with pytest.raises(ValidationError) as error:
            TypeAdapter(Sense).validate_python({"direction": word})
        (problem,) = describe(error.value, {"direction": word})
        assert str(problem) == (f"direction must be 'maximize' or 'minimize', got \"{word}\"; did you mean '{meant}'?")


def test_unknown_key_of_an_unknown_section_gets_no_list() -> None:
    assert str(unknown_key("x", [])) == "x is not a known key"


@pytest.mark.parametrize("value", ["x" * 1000, {"a": object()}, None, [1.5, "é"]])
def test_values_are_shown_on_one_short_line(value: object) -> None:
    assert 0 < len(excerpt(value)) <= 60
    assert "\n" not in excerpt(value)


EXECUTORS = " or ".join(", ".join(map(repr, get_args(ExecutorName))).rsplit(", ", 1))


# Lines of a file after or instead of those of HEAD, and a part of the message.
MISTAKES = """\
strategy:
  regularization: -1 => 5: strategy.regularization must be > 0, got -1
strategy:
  regularisation: 1
=> 5: strategy.regularisation is not a known key; did you mean 'regularization'?
strategy:
  kernel: {name: rbf,
    length: 1}
=> 6: strategy.kernel.length is not a known key; did you mean 'lengthscale'?
strategy:
  kernel: {name: rbf, lengthscale: wide}
=> 5: strategy.kernel.lengthscale must be a number or a list, got "wide"
strategy:
  kernel: {name: rbf, lengthscale: [1, x]}
=> 5: strategy.kernel.lengthscale.1 must be a number, got "x"
strategy: {kernel: rbf} => 4: strategy.kernel must be a mapping such as {name: rbf}, got "rbf"
seed: 1.5 => 4: seed must be a whole number, got 1.5
seed: true => 4: seed must be a whole number, got true
worker: {} => 4: worker is not a known key; did you mean 'workers'?
workers.count: 2 => 4: workers.count is not a known key; write workers: {count: …}
workers: {count: 0} => 4: workers.count must be >= 1, got 0
workers: 4 => 4: workers must be a mapping with keys such as
workers: {cpus: .inf} => 4: workers.cpus must be a finite number, got Infinity
workers: {executor: rai} => must be EXECUTORS, got "rai"
workers: {kind: thread} => 4: workers.kind must be 'task', 'actor' or 'auto', got "thread"
workers: {simulation: {sigmas: 1}} => 4: workers.simulation.sigmas is not a known key
data: {download: yes} => 4: data.download must be true or false, got "yes"
store: postgres => 4: store must be sqlite, sqlite:///FILE or postgresql://…
store: postgresql://u:secret@[::1/x => 4: store must be a database URL (it cannot be parsed)
store: 'sqlite://' => 4: store must name a file: sqlite:///FILE
workers: {timeout_seconds: 1.0e+300} => 4: workers.timeout_seconds must be <= 3600000000
space: {a: {low: 1, high: 0}} => 4: space.a.low must be < high, got low=1.0, high=0.0
space: {a: {low: 1}} => 4: space.a.high is required
space: {a: {from: 1}} => 4: space.a must have low and high, or choices
space: {a: 3} => 4: space.a must be a mapping such as {low: 0, high: 1}, got 3
space: {a: {ordered: [1, .inf]}} => 4: space.a.ordered must not be infinite or NaN, got inf; write
space: {a: {choices: [.nan, 1]}} => space.a.choices must not be infinite or NaN, got nan; write
space: {a: {constant: .nan}} => 4: space.a.constant must not be infinite or NaN
space: {a: {low: 0, high: .inf}} => 4: space.a.
space: {a: [0.5, 3]} => such as {low: 0.5, high: 3} or {choices: [0.5, 3]}, got [0.5, 3]
space: {a: [3, 0.5]} => must be a mapping such as {choices: [3, 0.5]}, got [3, 0.5]
space: [a] => 4: space must be a mapping such as
space: {a b: {low: 0, high: 1}} => 4: space.a b must be named by letters
space: {a: {choices: [[64, 64], [64, 64]]}} => 4: space.a.choices must differ from each other, got [64, 64] twice
space: {a: {choices: [[64], [.inf]]}} => 4: space.a.choices must not be infinite or NaN, got inf
space: {a: {choices: []}} => 4: space.a.choices must hold at least one value
space: {a: {min: 0, max: 1}}
=> choices, or ordered, or constant (write low instead of min and high instead of max), got
space: {a: {values: [1, 2]}} => (write choices instead of values), got
space: {a: [sgd, adam]} => must be a mapping such as {choices: ["sgd", "adam"]}
space: {a: {low: 0, high: 1, max: 1}} => 4: space.a.max is not a known key; did you mean 'high'?
space: {a: {low: 1, high: 2, lgo: true}} => space.a.lgo is not a known key; did you mean 'log'?
workers: {timeout: 600} => workers.timeout is not a known key; did you mean 'timeout_seconds'?
constraints: [{metric: m, max: 4}] => constraints.0.max is not a known key; did you mean 'at_most'?
constraints: [{metric: m, name: 4}] => constraints.0.name is not a known key; valid names: metric, at_most
early_stopping: {rule: median, grace: 1} => early_stopping.grace is not a known key; valid names: rule
data: {name: a} => data.name is not a known key; did you mean 'name' at the top level?
n_trials: 20 => 4: n_trials is not a known key; did you mean 'budget.evaluations'?
retries: 2 => 4: retries is not a known key; did you mean 'workers.retries'?
time: 3 => 4: time is not a known key; did you mean 'budget.hours'?
direction: minimize => 4: direction is not a known key; did you mean 'objective.direction'?
concurrency: 3 => 4: concurrency is not a known key; did you mean 'workers.count'?
sampler: tpe => 4: sampler is not a known key; did you mean 'strategy'?
workers: {timeout_seconds: 10m} => must be a number, got "10m"; write 600
early_stopping: asha => 4: early_stopping must be a mapping such as {rule: asha},
budget: {evaluations: 5, time: 2h} => did you mean 'hours'?
budget: {evaluations: 5, hours: 90min} => got "90min"; write 1.5
strategy: TPE => write {name: optuna, sampler: TPESampler}
strategy: tpe => write {name: optuna, sampler: TPESampler}
strategy: {name: hyperband} => write early_stopping: {rule: asha} beside any strategy
early_stopping: {rule: hyperband}
=> 4: early_stopping.rule must be 'asha', 'median' or 'model', got "hyperband"
early_stopping: {rule: asha, reduction: 0.5} => 4: early_stopping.reduction must be > 1, got 0.5
early_stopping: {reduction: 3} => 4: early_stopping.rule is required
early_stopping: {rule: median, reduction: 3} => 4: early_stopping.reduction needs rule: asha
early_stopping: {rule: asha, last_step: 3} => last_step needs rule: model
early_stopping: {rule: asha, continue: true} => early_stopping.continue needs rule: model
early_stopping: {rule: asha, reductoin: 3} => is not a known key; did you mean 'reduction'?
name: my test => '_' and '-', and begin with a letter or digit, such as my-test, got "my test"
run: a/b => such as a-b, got "a/b"
seed: 1e-3 => 4: seed must be a whole number, got 0.001
candidates: {target: y} => 4: candidates.target needs candidates.table
budget:
  hours: 1
objective: {name: branin} => 2: budget.evaluations is required
budget:
objective: {name: branin}
=> 2: budget must be a mapping with keys such as evaluations,
name: a/b => 3: name must
objective: {name: branin, command: ls}
=> 3: objective must have exactly one of name, callable and command, got name and command
objective: {name: brannin} => 3: objective.name must be one of abalone, branin
objective: {name: branin, evaluations: 3} => 3: objective.evaluations is not a known key; did you mean 'budget.evalu
objective: {name: branin, seed: 3} => 3: objective.seed is not a known key; did you mean 'seed' at the top
objective: {name: branin, minimize: true} => did you mean 'direction'?
objective: {name: branin, options: {noise: 1}}
=> 3: objective.options.noise is not a known key; did you mean 'noise_std'?
objective: {callable: 'm:f', direction: maximize} => x.yaml: space is required
objective: {function: 'm:f', direction: maximize} => 3: objective.function is for functions that are passed in Python
objective: {callable: 'm:f', direction: maximize, options: {path: m}}
=> 3: objective.options.path is not an option; write it as objective.callable
objective:
  command: a {b}
  direction: maximize
space: {c: {low: 0, high: 1}}
=> 4: objective.command: {b} must be one of the parameters c
objective: {command: '', direction: maximize}
space: {c: {low: 0, high: 1}} => 3: objective.command must
objective:
  command: a {
  direction: maximize
space: {c: {low: 0, high: 1}} => 4: objective.command:
candidates: {table: t.csv}
space: {c: {low: 0, high: 1}}
=> 5: space must not be given beside candidates.table
candidates: {table: t.csv, target: y}
=> 2: objective.name must not be given beside candidates.target
objective: {name: abalone}
space: {c: {low: 0, high: 1}}
=> 4: space must not be given: abalone brings its own candidates
strategy: {name: bbkbb}
=> 4: strategy.name must be a listed strategy or package.module:Name, got "bbkbb"; did you mean
strategy: {name: 3} => 4: strategy.name must be a listed strategy
strategy: {name: 'nowhere:Name'} => 4: strategy.name cannot be imported: no module named 'nowhere'
strategy: {name: 'json:loads'} => 4: strategy.name must name a class, got
strategy: [bbkb] => 4: strategy must be a mapping such as {name: bbkb, …}, got ["bbkb"]
strategy: {kernel: {lengthscale: 1}} => 4: strategy.kernel.name is required: one of rbf,
strategy: {kernel: {name: rfb}} => 4: strategy.kernel.name must be 'rbf',
strategy: {name: uniform, kernel: {name: rbf}} => 4: strategy.kernel is not a known key
strategy: {warm_start: {name: data}} => 4: strategy.warm_start data needs known_results, such as
budget: {steps: 10.5} => 3: budget.steps must be a whole number, got 10.5
budget: {trials: 5} => 3: budget.trials is not a known key; did you mean 'evaluations'?
budget: {steps: 0} => 3: budget.steps must be >= 1, got 0
budget: {evaluations: 5, stop_when: {no_gain_of: 0.1}}
=> 3: budget.stop_when must have in too, such as {no_gain_of: 0.001, in: 64}
budget: {evaluations: 5, stop_when: {in: 64}} => 3: budget.stop_when must have no_gain_of too
budget: {evaluations: 5, stop_when: {}}
=> 3: budget.stop_when must have no_gain_of and in, or expected_gain_below
budget: {evaluations: 5, stop_when: {no_gain_of: 0, in: 4}}
=> 3: budget.stop_when.no_gain_of must be > 0
budget: {evaluations: 5, stop_when: {expected_gain_below: nothing}}
=> 3: budget.stop_when.expected_gain_below
budget: {evaluations: 5, stop_when: {no_gain: 1}}
=> 3: budget.stop_when.no_gain is not a known key
budget: {evaluations: 5, stop_when: {expected_gain_below: 1}}
objectives: [{metric: a}, {metric: b}]
=> 3: budget.stop_when must not be given beside several objectives
budget: {evaluations: 5, target: 1}
objectives: [{metric: a}, {metric: b}] => 3: budget.target must not be given beside several
space: {x: {low: 0, high: 1}}
known_results: [{results: [{parameters: {x: 0.5}, value: 1}, {parameters: {x: [1, 2]}, value: 1}]}]
=> 5: known_results.0.results.1.parameters.x must be a number, got [1, 2]
space: {x: {low: 0, high: 1}}
known_results: [{results: [{parameters: {x: "0.5"}, value: 1}]}] => parameters.x must be a number, got "0.5"
known_results: [{table: x.csv}]
objectives: [{metric: a}, {metric: b}] => 4: known_results must not be given beside several
objectives: [{direction: minimize}] => 4: objectives.0.metric is required
objectives: [{metric: a, direction: up}]
objective: {name: branin, direction: minimize}
=> 3: objectives.0.direction must be 'minimize' or 'maximize'
objectives: [{metric: a}, {metric: a}] => 4: objectives.1.metric must differ from the earlier ones
objectives: [{metric: a}, {metric: b}]
objective: {name: branin, direction: minimize} => 4: objective.direction must be left
objectives: [{metric: a}, {metric: b}]
early_stopping: {}
strategy: uniform => 5: early_stopping.rule must be median or asha with this strategy
objectives: [{metric: a}, {metric: b}]
strategy: gp_ucb => 5: strategy must be one of those that take several
objectives: [{metric: a}, {metric: b}]
strategy: {preset: paper} => objectives and constraints: bbkb and uniform
constraints: [{metric: a}] => 4: constraints.0 must have at_most or at_least beside metric: a
constraints: [{metric: a, at_most: 1, at_least: 2}]
=> 4: constraints.0.at_least must be <= at_most, 1
objective: {callable: 'm:f'}
space: {a: {low: 0, high: 1}} => 3: objective.direction is required
objective: {command: echo}
space: {a: {low: 0, high: 1}}
=> 3: objective.direction is required, because the objective is your own: write direction: minimize
objective: {}
candidates: {table: t.csv, target: y}
=> minimize for a loss, direction: maximize for an accuracy
"""


@pytest.mark.parametrize(("text", "message"), cases(MISTAKES.replace("EXECUTORS", EXECUTORS)))
def test_mistake_is_reported_with_its_position_in_plain_words(error_lines: ErrorLines, text: str, message: str) -> None:
    given = {line.partition(":")[0] for line in text.splitlines()}
    head = "".join(f"{line}\n" for line in HEAD.splitlines() if line.partition(":")[0] not in given)
    (line,) = error_lines(head + text)
    assert message in line
    for noise in ("pydantic", "Input", "Value error", "Settings", "tuple[", "RBF"):
        assert noise not in line


def test_missing_section_is_reported(error_lines: ErrorLines) -> None:
    assert error_lines("name: x\nobjective: {name: branin}\n") == ["x.yaml: budget is required"]
    (line,) = error_lines("name: x\nobjective: {name: branin}\nn_trials: 5\n")
    assert line == "x.yaml:3: n_trials is not a known key; did you mean 'budget.evaluations'?"
    (line,) = error_lines("name: x\nobjective: {name: branin}\nbudget.evaluations: 5\n")
    assert line == "x.yaml:3: budget.evaluations is not a known key; write budget: {evaluations: …}"
    (line,) = error_lines("name: x\nbudget: {evaluations: 5}\n")
    assert line == "x.yaml: objective must have exactly one of name, callable and command, got none of them"


def test_mistakes_are_reported_at_once_in_the_order_of_the_file(error_lines: ErrorLines) -> None:
    text = (
        "name: x\nseed: -1\nbudget: {evaluations: many}\nobjective: {name: branin, option: 1}\n"
        "strategy:\n  kernel: {name: rbf, lengthscale: x}\n  delta: y\n  q: 1\nworkers: {count: 0}\n"
    )
    places = [line.split()[1] for line in error_lines(text, "workers.gpus=-1")]
    assert places == [
        "seed",
        "budget.evaluations",
        "objective.option",
        "strategy.kernel.lengthscale",
        "strategy.delta",
        "strategy.q",
        "workers.count",
        "workers.gpus=-1:",
    ]


def test_mistakes_between_sections_are_reported_beside_those_within_others(error_lines: ErrorLines) -> None:
    text = (
        "name: x\nseed: -1\nobjective: {name: branin}\nbudget: {evaluations: 5, stop_when: {in: 3}}\n"
        "strategy: uniform\nearly_stopping: {rule: model}\n"
        "known_results: [{results: []}]\n"
    )
    assert [line.split()[1] for line in error_lines(text)] == [
        "seed",
        "budget.stop_when",
        "early_stopping.rule",
        "known_results.0.results",
    ]


def test_section_with_a_mistake_causes_no_mistake_in_others(error_lines: ErrorLines) -> None:
    text = f"{HEAD}space: {{a: {{low: 1}}}}\nenqueue: [{{a: 2}}]\n"
    text += "known_results: [{run: runs/x}]\nforbid: [{a: 1}]\n"
    (line,) = error_lines(text)
    assert line.startswith("x.yaml:4: space.a.high is required")


def test_override_is_checked_like_the_file_and_named_in_the_message(error_lines: ErrorLines) -> None:
    (line,) = error_lines(f"{HEAD}strategy: {{regularization: 1}}\n", "strategy.regularization=-1")
    assert line == "--set strategy.regularization=-1: strategy.regularization must be > 0, got -1"
    (line,) = error_lines(HEAD, "budget.evaluation=10")
    assert line == ("--set budget.evaluation=10: budget.evaluation is not a known key; did you mean 'evaluations'?")


def test_mistake_in_the_model_is_reported_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(write({**SMALL, "strategy": {"model": {"outputs": "square"}}}))
    line = next(number for number, text in enumerate(file.read_text().splitlines(), 1) if "square" in text)
    with pytest.raises(ConfigError, match=rf"^{file}:{line}: .*model.outputs must be 'half_rank'"):
        load(file)
    file.write_text(write({**SMALL, "model": {"mean": "zero"}}))
    with pytest.raises(ConfigError, match=r"model is not a known key; did you mean 'strategy'"):
        load(file)


def test_settings_of_plain_values_are_reported_by_their_origin() -> None:
    with pytest.raises(ConfigError, match=r"^the log: seed must be >= 0, got -1$"):
        from_mapping({**SMALL, "seed": -1}, origin="the log")
    with pytest.raises(ConfigError, match=r"^--set seed=-1: seed must be >= 0"):
        from_mapping(SMALL, ["seed=-1"])


def test_source_of_known_results_has_a_location_and_a_run_in_a_database_a_name(error_lines: ErrorLines) -> None:
    sources = "- {run: 'postgresql://host/db'}\n- {store: 'postgresql://host/db'}\n- 3\n"
    rule = "must be a mapping with one of the keys table, run, optuna, ray_tune, results"
    assert [line.partition(", got")[0] for line in error_lines(f"{HEAD}known_results:\n{sources}")] == [
        "x.yaml:5: known_results.0.run must be a folder, or a name beside store: URL",
        f"x.yaml:6: known_results.1 {rule}",
        f"x.yaml:7: known_results.2 {rule}",
    ]


def test_whole_number_may_be_written_with_an_exponent() -> None:
    settings = from_mapping({**SMALL, "seed": 2.0, "budget": {"evaluations": 1e3, "steps": 1e4, "hours": 1.0}})
    assert (settings.seed, settings.budget.evaluations, settings.budget.steps) == (2, 1000, 10_000)
    stopping = from_mapping({**SMALL, "budget": {"evaluations": 5, "stop_when": {"no_gain_of": 0.1, "in": 1e2}}})
    assert 100 in plain(stopping)["budget"]["stop_when"].values()
    budget = plain(settings)["budget"]
    assert [type(budget[key]) for key in ("evaluations", "steps", "hours")] == [int, int, float]


def test_later_check_is_reported_with_the_line_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(
        "name: x\nbudget: {evaluations: 5}\nobjective:\n  callable: train:f\nenqueue:\n- {x: 1}\n- {x: 2}\n"
    )
    with pytest.raises(UserError, match=rf"^{file}:4: objective\.callable: there is no train"), naming_places(file):
        raise ObjectiveError("objective.callable: there is no train")
    with pytest.raises(UserError, match=rf"^{file}:7: enqueue\.1 must be"), naming_places(file):
        raise UserError("enqueue.1 must be a candidate")
    with pytest.raises(UserError, match=rf"^{file}:5: enqueue: there"), naming_places(file):
        raise ObjectiveError("enqueue: there are too many")
    place = "--set objective.callable=g"
    with pytest.raises(UserError, match=rf"^{place}: objective\.callable"), naming_places(file, [place[6:]]):
        raise ObjectiveError("objective.callable: there is no g")
    for message in ("candidates.table is missing", "the disk is full", "name that"):
        with pytest.raises(ObjectiveError, match=rf"^{message}$"), naming_places(file):
            raise ObjectiveError(message)


@pytest.mark.parametrize(
    ("sections", "rule"),
    [
        ({}, ""),
        ({"objective": {"deviation": 3}}, "objective.deviation must be text, got 3"),
        ({"strategy": {"name": "gp_ucb"}}, "objective.deviation needs a strategy that weighs results"),
        ({"constraints": [{"metric": "m", "at_most": 1}]}, "objective.deviation needs a single objective without"),
        ({"early_stopping": {"rule": "model"}}, "objective.deviation cannot be used with early_stopping.rule: model"),
    ],
)
def test_deviation_of_values_needs_a_strategy_and_goals_that_use_it(sections: dict[str, Any], rule: str) -> None:
    objective = {"name": "branin", "deviation": "std", **sections.get("objective", {})}
    tree = {"name": "n", "budget": {"evaluations": 9}, **sections, "objective": objective}
    if rule:
        with pytest.raises(ConfigError, match=rule):
            from_mapping(tree, origin="here")
    else:
        assert from_mapping(tree, origin="here").objective.deviation == "std"
