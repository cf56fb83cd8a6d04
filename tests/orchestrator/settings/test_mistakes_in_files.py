"""The messages when a campaign file is wrong: place, rule, value and remedy."""

from pathlib import Path
from typing import get_args

import pytest

from objectives.objective import ObjectiveError
from orchestrator.errors import ConfigError, UserError
from orchestrator.settings.file import write
from orchestrator.settings.loading import from_mapping, load, naming_places
from tests.orchestrator.settings.small import HEAD, SMALL, ErrorLines
from workers.executor import ExecutorName

EXECUTORS = " or ".join(", ".join(map(repr, get_args(ExecutorName))).rsplit(", ", 1))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{HEAD}strategy:\n  regularization: -1\n", "x.yaml:5: strategy.regularization must be > 0, got -1"),
        (
            f"{HEAD}strategy:\n  regularisation: 1\n",
            "x.yaml:5: strategy.regularisation is not a known key; did you mean 'regularization'?",
        ),
        (
            f"{HEAD}strategy:\n  kernel: {{name: rbf,\n    length: 1}}\n",
            "x.yaml:6: strategy.kernel.length is not a known key; did you mean 'lengthscale'?",
        ),
        (
            f"{HEAD}strategy:\n  kernel: {{name: rbf, lengthscale: wide}}\n",
            'x.yaml:5: strategy.kernel.lengthscale must be a number or a list, got "wide"',
        ),
        (
            f"{HEAD}strategy:\n  kernel: {{name: rbf, lengthscale: [1, x]}}\n",
            'x.yaml:5: strategy.kernel.lengthscale.1 must be a number, got "x"',
        ),
        (
            f"{HEAD}strategy: {{kernel: rbf}}\n",
            'x.yaml:4: strategy.kernel must be a mapping such as {name: rbf}, got "rbf"',
        ),
        (f"{HEAD}seed: 1.5\n", "x.yaml:4: seed must be a whole number, got 1.5"),
        (f"{HEAD}seed: true\n", "x.yaml:4: seed must be a whole number, got true"),
        (f"{HEAD}worker: {{}}\n", "x.yaml:4: worker is not a known key; did you mean 'workers'?"),
        (f"{HEAD}workers.count: 2\n", "x.yaml:4: workers.count is not a known key; write workers: {count: …}"),
        (
            f"{HEAD}notify: {{webhook: a.b/c}}\n",
            "x.yaml:4: notify.webhook must begin with https:// or http://, or be ${",
        ),
        (f"{HEAD}workers: {{count: 0}}\n", "x.yaml:4: workers.count must be >= 1, got 0"),
        (f"{HEAD}workers: 4\n", "x.yaml:4: workers must be a mapping with keys such as "),
        (f"{HEAD}workers: {{cpus: .inf}}\n", "x.yaml:4: workers.cpus must be a finite number, got Infinity"),
        (f"{HEAD}workers: {{executor: rai}}\n", f'must be {EXECUTORS}, got "rai"'),
        (
            f"{HEAD}workers: {{kind: thread}}\n",
            "x.yaml:4: workers.kind must be 'task', 'actor' or 'auto', got \"thread\"",
        ),
        (f"{HEAD}workers: {{keep_hours: 0}}\n", "x.yaml:4: workers.keep_hours must be > 0, got 0"),
        (f"{HEAD}workers: {{timeout_factor: 1}}\n", "x.yaml:4: workers.timeout_factor must be > 1, got 1"),
        (
            f"{HEAD}workers: {{retry_memory_factor: 2}}\n",
            "x.yaml:4: workers.retry_memory_factor needs workers.memory_gb",
        ),
        (f"{HEAD}workers: {{simulation: {{sigmas: 1}}}}\n", "x.yaml:4: workers.simulation.sigmas is not a known key"),
        (f"{HEAD}data: {{download: yes}}\n", 'x.yaml:4: data.download must be true or false, got "yes"'),
        (f"{HEAD}store: postgres\n", "x.yaml:4: store must be sqlite, sqlite:///FILE or postgresql://…"),
        (f"{HEAD}store: postgresql://u:secret@[::1/x\n", "x.yaml:4: store must be a database URL (invalid literal"),
        (f"{HEAD}store: 'sqlite://'\n", "x.yaml:4: store must name a file: sqlite:///FILE"),
        (f"{HEAD}workers: {{timeout_seconds: 1.0e+300}}\n", "x.yaml:4: workers.timeout_seconds must be <= 3600000000"),
        (f"{HEAD}space:\n  a: {{low: 1, high: 0}}\n", "x.yaml:5: space.a.low must be < high, got low=1.0, high=0.0"),
        (f"{HEAD}space:\n  a: {{low: 1}}\n", "x.yaml:5: space.a.high is required"),
        (f"{HEAD}space:\n  a: {{from: 1}}\n", "x.yaml:5: space.a must have low and high, or choices"),
        (f"{HEAD}space:\n  a: 3\n", "x.yaml:5: space.a must be a mapping such as {low: 0, high: 1}, got 3"),
        (f"{HEAD}space:\n  a: {{ordered: [1, .inf]}}\n", "x.yaml:5: space.a must hold finite numbers only"),
        (f"{HEAD}space:\n  a: [0.5, 3]\n", "such as {low: 0.5, high: 3} or {choices: [0.5, 3]}, got [0.5, 3]"),
        (f"{HEAD}space:\n  a: [3, 0.5]\n", "must be a mapping such as {choices: [3, 0.5]}, got [3, 0.5]"),
        (f"{HEAD}space: [a]\n", "x.yaml:4: space must be a mapping such as"),
        (f"{HEAD}space:\n  a b: {{low: 0, high: 1}}\n", "x.yaml:5: space.a b must be named by letters"),
        (f"{HEAD}space: {{a: {{choices: []}}}}\n", "x.yaml:4: space.a.choices must hold at least one value"),
        (
            f"{HEAD}space:\n  a: {{min: 0, max: 1}}\n",
            "choices, or ordered, or constant (write low instead of min and high instead of max), got",
        ),
        (f"{HEAD}space:\n  a: {{values: [1, 2]}}\n", "(write choices instead of values), got"),
        (f"{HEAD}space:\n  a: [sgd, adam]\n", 'must be a mapping such as {choices: ["sgd", "adam"]}'),
        (
            f"{HEAD}space:\n  a: {{low: 0, high: 1, max: 1}}\n",
            "x.yaml:5: space.a.max is not a known key; did you mean 'high'?",
        ),
        (f"{HEAD}space:\n  a: {{low: 1, high: 2, lgo: true}}\n", "space.a.lgo is not a known key; did you mean 'log'?"),
        (f"{HEAD}workers: {{timeout: 600}}\n", "workers.timeout is not a known key; did you mean 'timeout_seconds'?"),
        (
            f"{HEAD}constraints: [{{metric: m, max: 4}}]\n",
            "constraints.0.max is not a known key; did you mean 'at_most'?",
        ),
        (f"{HEAD}n_trials: 20\n", "x.yaml:4: n_trials is not a known key; did you mean 'budget.evaluations'?"),
        (f"{HEAD}workers: {{timeout_seconds: 10m}}\n", 'must be a number, got "10m"; write 600'),
        (f"{HEAD}early_stopping: asha\n", "x.yaml:4: early_stopping must be a mapping such as {rule: asha}, "),
        ("name: x\nobjective: {name: branin}\nbudget: {evaluations: 5, time: 2h}\n", "did you mean 'hours'?"),
        ("name: x\nobjective: {name: branin}\nbudget: {evaluations: 5, hours: 90min}\n", 'got "90min"; write 1.5'),
        (f"{HEAD}strategy: TPE\n", "write {name: optuna, sampler: TPESampler}"),
        (f"{HEAD}strategy: tpe\n", "write {name: optuna, sampler: TPESampler}"),
        (f"{HEAD}strategy: {{name: hyperband}}\n", "write early_stopping: {rule: asha} beside any strategy"),
        (
            f"{HEAD}early_stopping: {{rule: hyperband}}\n",
            "x.yaml:4: early_stopping.rule must be 'asha', 'median' or 'model', got \"hyperband\"",
        ),
        (f"{HEAD}early_stopping: {{reduction: 3}}\n", "x.yaml:4: early_stopping.rule is required"),
        (
            f"{HEAD}early_stopping: {{rule: median, reduction: 3}}\n",
            "x.yaml:4: early_stopping.reduction needs rule: asha",
        ),
        (f"{HEAD}early_stopping: {{rule: asha, after: 3}}\n", "after needs rule: median or rule: model"),
        (f"{HEAD}early_stopping: {{rule: asha, continue: true}}\n", "early_stopping.continue needs rule: model"),
        (f"{HEAD}early_stopping: {{rule: asha, frist_step: 3}}\n", "is not a known key; did you mean 'first_step'?"),
        (
            "name: my test\nobjective: {name: branin}\nbudget: {evaluations: 5}\n",
            "'_' and '-', and begin with a letter or digit, such as my-test, got \"my test\"",
        ),
        (f"{HEAD}run: a/b\n", 'such as a-b, got "a/b"'),
        (f"{HEAD}seed: 1e-3\n", "x.yaml:4: seed must be a whole number, got 0.001"),
        (f"{HEAD}candidates: {{target: y}}\n", "x.yaml:4: candidates.target needs candidates.table"),
        ("name: x\nobjective: {name: branin}\n", "x.yaml: budget is required"),
        ("name: x\nbudget:\n  hours: 1\nobjective: {name: branin}\n", "x.yaml:2: budget.evaluations is required"),
        (
            "name: x\nbudget:\nobjective: {name: branin}\n",
            "x.yaml:2: budget must be a mapping with keys such as evaluations, ",
        ),
        ("name: a/b\nobjective: {name: branin}\nbudget: {evaluations: 5}\n", "x.yaml:1: name must"),
        (
            "name: x\nbudget: {evaluations: 5}\n",
            "x.yaml: objective must have exactly one of name, callable and command, got none of them",
        ),
        (
            "name: x\nbudget: {evaluations: 5}\nobjective: {name: branin, command: ls}\n",
            "x.yaml:3: objective must have exactly one of name, callable and command, got name and command",
        ),
        (
            "name: x\nbudget: {evaluations: 5}\nobjective: {name: brannin}\n",
            "x.yaml:3: objective.name must be one of abalone, branin",
        ),
        (
            "name: x\nbudget: {evaluations: 5}\nobjective: {name: branin, options: {noise: 1}}\n",
            "x.yaml:3: objective.options.noise is not a known key; did you mean 'noise_std'?",
        ),
        (
            "name: x\nbudget: {evaluations: 5}\nobjective: {callable: 'm:f', direction: maximize}\n",
            "x.yaml: space is required",
        ),
        (
            "name: x\nbudget: {evaluations: 5}\n"
            "objective: {callable: 'm:f', direction: maximize, options: {path: m}}\n",
            "x.yaml:3: objective.options.path is not an option; write it as objective.callable",
        ),
        (
            "name: x\nbudget: {evaluations: 5}\n"
            "objective:\n  command: a {b}\n  direction: maximize\nspace: {c: {low: 0, high: 1}}\n",
            "x.yaml:4: objective.command: {b} must be one of the parameters c",
        ),
        (
            "name: x\nbudget: {evaluations: 5}\n"
            "objective: {command: '', direction: maximize}\nspace: {c: {low: 0, high: 1}}\n",
            "x.yaml:3: objective.command must",
        ),
        (
            "name: x\nbudget: {evaluations: 5}\n"
            "objective:\n  command: a {\n  direction: maximize\nspace: {c: {low: 0, high: 1}}\n",
            "x.yaml:4: objective.command: ",
        ),
        (
            f"{HEAD}candidates: {{table: t.csv}}\nspace: {{c: {{low: 0, high: 1}}}}\n",
            "x.yaml:5: space must not be given beside candidates.table",
        ),
        (
            f"{HEAD}candidates: {{table: t.csv, target: y}}\n",
            "x.yaml:2: objective.name must not be given beside candidates.target",
        ),
        (
            "name: x\nbudget: {evaluations: 5}\nobjective: {name: abalone}\nspace: {c: {low: 0, high: 1}}\n",
            "x.yaml:4: space must not be given: abalone brings its own candidates",
        ),
    ],
)
def test_mistake_is_reported_with_its_place_and_in_plain_words(
    error_lines: ErrorLines, text: str, message: str
) -> None:
    (line,) = error_lines(text)
    assert message in line
    for noise in ("pydantic", "Input", "Value error", "Settings", "tuple[", "RBF"):
        assert noise not in line


@pytest.mark.parametrize(
    ("strategy", "message"),
    [
        ("{name: bbkbb}", 'strategy.name must be a listed strategy or package.module:Name, got "bbkbb"; did you mean'),
        ("{name: 3}", "strategy.name must be a listed strategy"),
        ("{name: 'nowhere:Name'}", "strategy.name cannot be imported: no module named 'nowhere'"),
        ("{name: 'json:loads'}", "strategy.name must name a class, it names"),
        ("[bbkb]", 'strategy must be a mapping such as {name: bbkb, …}, got ["bbkb"]'),
        ("{kernel: {lengthscale: 1}}", "strategy.kernel.name is required: one of rbf, "),
        ("{kernel: {name: rfb}}", "strategy.kernel.name must be one of rbf, "),
        ("{name: uniform, kernel: {name: rbf}}", "strategy.kernel is not a known key"),
    ],
)
def test_strategy_that_does_not_exist_is_reported_with_those_that_do(
    error_lines: ErrorLines, strategy: str, message: str
) -> None:
    (line,) = error_lines(f"{HEAD}strategy: {strategy}\n")
    assert line.startswith(f"x.yaml:4: {message}")


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
        "strategy: uniform\nearly_stopping: {rule: model}\ncomputing: {shards: 2}\n"
        "known_results: [{results: []}]\n"
    )
    assert [line.split()[1] for line in error_lines(text)] == [
        "seed",
        "budget.stop_when",
        "early_stopping.rule",
        "computing.shards",
        "known_results.0.results",
    ]


@pytest.mark.parametrize(
    "objective",
    ["{callable: 'm:f'}", "{command: echo}", "{}\ncandidates: {table: t.csv, target: y}"],
)
def test_direction_is_required_for_a_users_objective(error_lines: ErrorLines, objective: str) -> None:
    text = f"name: x\nbudget: {{evaluations: 5}}\nobjective: {objective}\n"
    (line,) = error_lines(text if "table" in objective else f"{text}space: {{a: {{low: 0, high: 1}}}}\n")
    assert line.startswith("x.yaml:3: objective.direction is required")
    assert line.endswith("write direction: minimize for a loss, direction: maximize for an accuracy")


def test_section_with_a_mistake_causes_no_mistake_in_others(error_lines: ErrorLines) -> None:
    text = f"{HEAD}space: {{a: {{low: 1}}}}\nenqueue: [{{a: 2}}]\n"
    text += "known_results: [{best_of: [runs/x]}]\nforbid: [{a: 1}]\n"
    (line,) = error_lines(text)
    assert line.startswith("x.yaml:4: space.a.high is required")


def test_override_is_checked_like_the_file_and_named_in_the_message(error_lines: ErrorLines) -> None:
    (line,) = error_lines(f"{HEAD}strategy: {{regularization: 1}}\n", "strategy.regularization=-1")
    assert line == "--set strategy.regularization=-1: strategy.regularization must be > 0, got -1"
    (line,) = error_lines(HEAD, "budget.evaluation=10")
    assert line == ("--set budget.evaluation=10: budget.evaluation is not a known key; did you mean 'evaluations'?")


def test_mistake_in_the_section_model_is_reported_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(write({**SMALL, "model": {"outputs": "square"}}))
    line = next(number for number, text in enumerate(file.read_text().splitlines(), 1) if "square" in text)
    with pytest.raises(ConfigError, match=rf"^{file}:{line}: .*model.outputs must be 'half_rank'"):
        load(file)
    file.write_text(write({**SMALL, "model": {}, "strategy": {"model": {"mean": "zero"}}}))
    with pytest.raises(ConfigError, match=r"model must not be given beside strategy\.model"):
        load(file)


def test_settings_of_plain_values_are_reported_by_their_origin() -> None:
    with pytest.raises(ConfigError, match=r"^the log: seed must be >= 0, got -1$"):
        from_mapping({**SMALL, "seed": -1}, origin="the log")
    with pytest.raises(ConfigError, match=r"^--set seed=-1: seed must be >= 0"):
        from_mapping(SMALL, ["seed=-1"])


def test_known_results_have_a_place_and_a_run_of_a_database_has_a_name(error_lines: ErrorLines) -> None:
    head = "name: x\nobjective: {name: branin}\nbudget: {evaluations: 5}\n"
    [line] = error_lines(head + "strategy:\n  warm_start: {name: data}\n")
    assert line.startswith("x.yaml:5: strategy.warm_start data needs known_results, such as")
    lines = error_lines(
        head + "known_results:\n- {run: 'postgresql://host/db'}\n- {store: 'postgresql://host/db'}\n- 3\n"
    )
    rule = "must be a mapping with one of the keys table, run, optuna, ray_tune, results, best_of"
    assert [line.partition(", got")[0] for line in lines] == [
        "x.yaml:5: known_results.0.run must be a folder, or a name beside store: URL",
        f"x.yaml:6: known_results.1 {rule}",
        f"x.yaml:7: known_results.2 {rule}",
    ]


def test_candidates_are_spread_over_actors_if_strategy_and_executor_can(error_lines: ErrorLines) -> None:
    text = "name: x\nobjective: {name: branin}\nbudget: {evaluations: 5}\ncomputing: {shards: 2}\n"
    assert error_lines(text + "strategy: {name: gp_ucb}\n") == [
        "x.yaml:4: computing.shards must be 1 with this strategy, bbkb can have more, got 2"
    ]
    assert error_lines(text + "workers: {executor: inline}\n") == [
        "x.yaml:4: computing.shards must be 1 without workers.executor ray, got 2"
    ]
    assert from_mapping({**SMALL, "computing": {"shards": 2, "threads": 2}}).computing.shards == 2


def test_whole_number_may_be_written_with_an_exponent() -> None:
    settings = from_mapping({**SMALL, "seed": 2.0, "budget": {"evaluations": 1e3, "steps": 1e4, "hours": 1.0}})
    assert (settings.seed, settings.budget.evaluations, settings.budget.steps) == (2, 1000, 10_000)
    stopping = from_mapping({**SMALL, "budget": {"evaluations": 5, "stop_when": {"no_gain_of": 0.1, "in": 1e2}}})
    assert 100 in stopping.resolved()["budget"]["stop_when"].values()
    plain = settings.resolved()["budget"]
    assert [type(plain[key]) for key in ("evaluations", "steps", "hours")] == [int, int, float]


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
