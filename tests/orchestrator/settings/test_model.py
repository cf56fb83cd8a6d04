"""Tests of orchestrator/settings/model.py: what a campaign file may contain, and the messages when it is wrong."""

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from objectives.command import ShellCommand
from objectives.external import PythonCallable
from objectives.parameters import Choice, Constant, Ordered, Range
from objectives.synthetic import Branin
from orchestrator.bandit.model.model import Model
from orchestrator.bandit.start.warm_start import DataStart, warm_start_of
from orchestrator.bandit.strategies import STRATEGIES
from orchestrator.bandit.strategies.bbkb import BBKB
from orchestrator.errors import ConfigError
from orchestrator.settings.file import write
from orchestrator.settings.model import Settings, from_mapping, load

CONFIGS = sorted(Path(__file__).parents[3].joinpath("configs").glob("*.yaml"))
SMALL: Mapping[str, Any] = {"name": "x", "objective": {"name": "branin"}, "budget": {"evaluations": 5}}

ErrorLines = Callable[..., list[str]]


@pytest.fixture
def error_lines(tmp_path: Path) -> ErrorLines:
    """The lines of the error that a file (and overrides) makes, without the folder's name."""

    def lines(text: str, *overrides: str) -> list[str]:
        (tmp_path / "x.yaml").write_text(text)
        with pytest.raises(ConfigError) as error:
            load(tmp_path / "x.yaml", overrides)
        return str(error.value).replace(f"{tmp_path}/", "").splitlines()

    return lines


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_every_shipped_campaign_loads_and_loads_back_from_its_resolved_form(path: Path, tmp_path: Path) -> None:
    shipped = load(path)
    resolved = shipped.resolved()
    assert from_mapping(resolved) == shipped
    assert json.loads(json.dumps(resolved)) == resolved
    (tmp_path / "campaign.yaml").write_text(write(resolved))
    assert load(tmp_path / "campaign.yaml") == shipped


def test_the_smallest_campaign_has_every_default_filled_in() -> None:
    small = from_mapping(SMALL)
    assert isinstance(small.strategy, BBKB)
    assert small.strategy.model == Model()
    assert small.strategy.wait == "never"
    assert small.space == {"x": Range(0.0, 1.0), "y": Range(0.0, 1.0)}, "the objective's own space"
    assert (small.workers.executor, small.workers.count) == ("ray", os.cpu_count())
    assert (small.seed, small.store, small.objective.direction) == (0, "sqlite", "maximize")
    assert small.runs == str(Path.cwd() / "runs")
    assert small.resolved()["strategy"]["name"] == "bbkb"


def test_strategy_space_and_objective_are_built() -> None:
    built = from_mapping(
        {
            **SMALL,
            "objective": {"name": "branin", "options": {"noise_std": 0}},
            "space": {
                "x": {"low": 1e-3, "high": 1, "log": True},
                "y": {"choices": ["a", 1, 2.5]},
                "z": {"ordered": [1, 2]},
                "w": {"constant": "c"},
            },
            "strategy": {"name": "bbkb", "kernel": {"name": "matern52", "lengthscale": [0.5, 1]}},
        }
    )
    assert isinstance(built.objective.options, Branin)
    assert built.objective.options.noise_std == 0
    assert built.space == {
        "x": Range(1e-3, 1, log=True),
        "y": Choice(("a", 1, 2.5)),
        "z": Ordered((1, 2)),
        "w": Constant("c"),
    }
    assert isinstance(built.strategy, BBKB)
    assert built.strategy.kernel.name == "matern52"
    assert built.strategy.kernel.lengthscale == (0.5, 1.0)
    assert built.objective.load(built.data.source()) is not None


HEAD = "name: x\nobjective: {name: branin}\nbudget: {evaluations: 5}\n"  # three lines


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
        (f"{HEAD}strategy: {{kernel: rbf}}\n", 'x.yaml:4: strategy.kernel must be a mapping, got "rbf"'),
        (f"{HEAD}seed: 1.5\n", "x.yaml:4: seed must be a whole number, got 1.5"),
        (f"{HEAD}seed: true\n", "x.yaml:4: seed must be a whole number, got true"),
        (f"{HEAD}worker: {{}}\n", "x.yaml:4: worker is not a known key; did you mean 'workers'?"),
        (f"{HEAD}workers: {{count: 0}}\n", "x.yaml:4: workers.count must be >= 1, got 0"),
        (f"{HEAD}workers: 4\n", "x.yaml:4: workers must be a mapping, got 4"),
        (f"{HEAD}workers: {{cpus: .inf}}\n", "x.yaml:4: workers.cpus must be a finite number, got Infinity"),
        (f"{HEAD}workers: {{executor: rai}}\n", "must be 'ray', 'inline' or 'simulated', got \"rai\""),
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
        (f"{HEAD}space: [a]\n", "x.yaml:4: space must be a mapping such as"),
        (f"{HEAD}space:\n  a b: {{low: 0, high: 1}}\n", "x.yaml:5: space.a b must be named by letters"),
        (f"{HEAD}space: {{a: {{choices: []}}}}\n", "x.yaml:4: space.a.choices must hold at least one value"),
        (f"{HEAD}candidates: {{target: y}}\n", "x.yaml:4: candidates.target needs candidates.table"),
        ("name: x\nobjective: {name: branin}\n", "x.yaml: budget is required"),
        ("name: x\nbudget:\n  hours: 1\n", "x.yaml:2: budget.evaluations is required"),
        ("name: x\nbudget:\n", "x.yaml:2: budget must be a mapping, got null"),
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
        ("name: x\nbudget: {evaluations: 5}\nobjective: {callable: 'm:f'}\n", "x.yaml: space is required"),
        (
            "name: x\nbudget: {evaluations: 5}\nobjective: {callable: 'm:f', options: {path: m}}\n",
            "x.yaml:3: objective.options.path is not an option; write it as objective.callable",
        ),
        (
            "name: x\nbudget: {evaluations: 5}\nobjective:\n  command: a {b}\nspace: {c: {low: 0, high: 1}}\n",
            "x.yaml:4: objective.command: {b} must be one of the parameters c",
        ),
        (
            "name: x\nbudget: {evaluations: 5}\nobjective:\n  command: a {\nspace: {c: {low: 0, high: 1}}\n",
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
def test_a_mistake_is_reported_with_its_place_and_in_plain_words(
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
        ("{name: 'nowhere:Name'}", "strategy.name cannot be imported: 'nowhere:Name': no module named 'nowhere'"),
        ("{name: 'json:loads'}", "strategy.name must name a dataclass of hyper-parameters"),
        ("[bbkb]", 'strategy must be a mapping such as {name: bbkb, …}, got ["bbkb"]'),
        ("{kernel: {lengthscale: 1}}", "strategy.kernel.name is required: one of rbf, "),
        ("{kernel: {name: rfb}}", "strategy.kernel.name must be one of rbf, "),
        ("{name: uniform, kernel: {name: rbf}}", "strategy.kernel is not a known key"),
    ],
)
def test_a_strategy_that_does_not_exist_is_reported_with_those_that_do(
    error_lines: ErrorLines, strategy: str, message: str
) -> None:
    (line,) = error_lines(f"{HEAD}strategy: {strategy}\n")
    assert line.startswith(f"x.yaml:4: {message}")


def test_all_mistakes_are_reported_at_once_in_the_order_of_the_file(error_lines: ErrorLines) -> None:
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


def test_an_override_is_checked_like_the_file_and_named_in_the_message(error_lines: ErrorLines) -> None:
    (line,) = error_lines(f"{HEAD}strategy: {{regularization: 1}}\n", "strategy.regularization=-1")
    assert line == "--set strategy.regularization=-1: strategy.regularization must be > 0, got -1"
    (line,) = error_lines(HEAD, "budget.evaluation=10")
    assert line == ("--set budget.evaluation=10: budget.evaluation is not a known key; did you mean 'evaluations'?")


def test_a_budget_of_steps_alone_bounds_the_evaluations(error_lines: ErrorLines) -> None:
    one = from_mapping({**SMALL, "budget": {"steps": 7}})
    assert (one.budget.steps, one.budget.evaluations) == (7, 7)
    head = "name: x\nobjective: {name: branin}\n"
    assert error_lines(head + "budget: {hours: 1}") == ["x.yaml:3: budget.evaluations is required"]
    assert error_lines(head + "budget: {steps: 0}") == ["x.yaml:3: budget.steps must be >= 1, got 0"]


def test_an_override_wins_over_the_file(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text(HEAD)
    changed = load(
        tmp_path / "x.yaml", ["strategy.ratio_threshold=3", "budget.evaluations=7", "workers.timeout_seconds=1e2"]
    )
    assert isinstance(changed.strategy, BBKB)
    assert (changed.strategy.ratio_threshold, changed.budget.evaluations) == (3.0, 7)
    assert changed.workers.timeout_seconds == 100.0


def test_relative_paths_count_from_the_campaign_file(tmp_path: Path) -> None:
    folder = tmp_path / "below"
    folder.mkdir()
    (folder / "x.yaml").write_text(
        "name: x\nbudget: {evaluations: 5}\nobjective: {callable: 'm:f'}\n"
        "candidates: {table: t.csv}\nstore: sqlite:///log.db\ndata: {folder: sets}\nruns: out\n"
    )
    made = load(folder / "x.yaml")
    assert made.candidates.table == str(folder / "t.csv")
    assert made.data.folder == str(folder / "sets")
    assert made.store == f"sqlite:///{folder / 'log.db'}"
    assert made.objective.options == PythonCallable("m:f", (str(folder), str(Path.cwd())))
    assert made.runs == str(Path.cwd() / "out"), "results belong where the user is"
    assert load(folder / "x.yaml", ["store=sqlite:////db"]).store == "sqlite:////db"
    assert load(folder / "x.yaml", ["store=postgresql://h/db"]).store == "postgresql://h/db"


def test_a_command_runs_beside_the_campaign_file(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text(
        "name: x\nbudget: {evaluations: 5}\nobjective: {command: 'run {a}', options: {memory_bytes: 5}}\n"
        "space: {a: {low: 0, high: 1}}\n"
    )
    made = load(tmp_path / "x.yaml")
    assert made.objective.options == ShellCommand("run {a}", str(tmp_path), memory_bytes=5)
    assert made.objective.load(made.data.source()) is made.objective.options
    assert from_mapping(made.resolved()) == made
    elsewhere = load(tmp_path / "x.yaml", ["objective.options={working_directory: ..}"])
    assert isinstance(elsewhere.objective.options, ShellCommand)
    assert elsewhere.objective.options.working_directory == str(tmp_path.parent)


def test_a_table_with_a_target_is_the_objective() -> None:
    table = {"name": "x", "budget": {"evaluations": 5}, "candidates": {"table": "/t.csv", "target": "y"}}
    made = from_mapping({**table, "objective": {"direction": "minimize"}})
    assert made.objective.load(made.data.source()) is None
    assert from_mapping(made.resolved()) == made


def test_an_objective_with_its_own_candidates_needs_no_space() -> None:
    assert from_mapping({**SMALL, "objective": {"name": "abalone"}}).space == {}


def test_a_strategy_may_come_from_anywhere() -> None:
    cls = STRATEGIES["uniform"]
    named = from_mapping({**SMALL, "strategy": {"name": f"{cls.__module__}:{cls.__qualname__}"}})
    assert named == from_mapping({**SMALL, "strategy": {"name": "uniform"}})


def test_the_section_model_belongs_to_any_model_based_strategy() -> None:
    section = {"outputs": "rank", "kernel": {"name": "rbf"}}
    made = from_mapping({**SMALL, "model": section})
    assert made == from_mapping({**SMALL, "strategy": {"name": "bbkb", "model": section}})
    assert isinstance(made.strategy, BBKB)
    assert made.strategy.model is not None
    assert (made.strategy.model.outputs, made.strategy.model.kernel.name) == ("rank", "rbf")
    assert from_mapping(made.resolved()) == made
    assert (
        from_mapping({**SMALL, "model": section, "strategy": {"name": "uniform"}}).strategy == STRATEGIES["uniform"]()
    )


def test_a_mistake_in_the_section_model_is_reported_with_its_line(tmp_path: Path) -> None:
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


_positive = st.floats(1e-6, 1e6)
_whole = st.integers(-1_000_000, 1_000_000)
_text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
_parameter = st.one_of(
    st.builds(
        lambda low, width, log: {"low": low, "high": low + width, "log": log}, _positive, _positive, st.booleans()
    ),
    st.builds(lambda low, width: {"low": low, "high": low + width, "integer": True}, _whole, st.integers(1, 99)),
    st.lists(_text | st.integers(-9, 9), min_size=1, max_size=4, unique=True).map(lambda some: {"choices": some}),
    st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=4, unique=True).map(
        lambda some: {"ordered": some}
    ),
    (_text | st.booleans() | st.none()).map(lambda value: {"constant": value}),
)
_campaign = st.fixed_dictionaries(
    {
        "name": st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", fullmatch=True),
        "objective": st.sampled_from([{"callable": "a.b:c"}, {"command": "run"}, {"name": "branin"}]),
        "space": st.dictionaries(st.sampled_from(["a", "b", "größe", "lambda"]), _parameter).map(
            lambda space: {**space, "varies": {"low": 0, "high": 1}}
        ),
        "budget": st.fixed_dictionaries({"evaluations": st.integers(1, 10**9)}, optional={"hours": _positive}),
    },
    optional={
        "seed": st.integers(0),
        "candidates": st.fixed_dictionaries({}, optional={"size": st.none() | st.integers(1, 10_000_000)}),
        "strategy": st.sampled_from([{"name": "uniform"}, {"kernel": {"name": "matern32", "lengthscale": [1, 2]}}]),
        "workers": st.fixed_dictionaries(
            {}, optional={"count": st.integers(1, 512), "memory_gb": st.none() | _positive}
        ),
        "store": st.sampled_from(["sqlite", "sqlite:///a.db", "postgresql://u@h/d"]),
        "data": st.fixed_dictionaries({}, optional={"download": st.booleans(), "folder": st.sampled_from([None, "d"])}),
    },
)


@settings(max_examples=60, deadline=None)
@given(campaign=_campaign)
def test_resolved_settings_are_plain_values_and_load_back(campaign: dict[str, Any]) -> None:
    made = from_mapping(campaign)
    resolved = made.resolved()
    assert from_mapping(json.loads(json.dumps(resolved))) == made
    assert from_mapping(yaml.safe_load(write(resolved))) == made
    assert isinstance(made, Settings)
    # several objectives, and constraints, are written where there are any
    assert set(Settings.model_fields) - set(resolved) <= {"objectives", "constraints"}
    assert set(resolved) <= set(Settings.model_fields)


def test_the_data_folder_of_the_environment_is_written_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BBKB_DATA", str(tmp_path))
    tree = {"name": "x", "objective": {"name": "sine"}, "budget": {"evaluations": 3}}
    resolved = from_mapping(tree).resolved()
    monkeypatch.delenv("BBKB_DATA")
    assert from_mapping(resolved).data.folder == str(tmp_path)
    assert from_mapping(tree).data.folder is None


@pytest.mark.parametrize(
    ("start", "path"),
    [
        ("{name: data, path: results/t.csv}", "{folder}/results/t.csv"),
        ("{name: data, path: 'sqlite:///old.sqlite', campaign: c}", "sqlite:///{folder}/old.sqlite"),
        ("{name: data, path: 'postgresql://host/db', campaign: c}", "postgresql://host/db"),
    ],
)
def test_existing_data_lie_beside_the_campaign_file(tmp_path: Path, start: str, path: str) -> None:
    strategy = f"strategy: {{name: gp_ucb, warm_start: {start}}}"
    (tmp_path / "x.yaml").write_text(f"name: x\nobjective: {{name: branin}}\nbudget: {{evaluations: 5}}\n{strategy}\n")
    settings = load(tmp_path / "x.yaml")
    known = warm_start_of(settings.strategy)
    assert isinstance(known, DataStart)
    assert known.path == path.format(folder=tmp_path)
    assert from_mapping(settings.resolved()) == settings


def test_existing_data_need_a_path_and_a_database_a_campaign(error_lines: ErrorLines) -> None:
    head = "name: x\nobjective: {name: branin}\nbudget: {evaluations: 5}\n"
    assert error_lines(head + "strategy:\n  warm_start: {name: data}\n") == [
        "x.yaml:5: strategy.warm_start.path is required"
    ]
    [line] = error_lines(head + "strategy:\n  warm_start: {name: data, path: 'postgresql://host/db'}\n")
    assert line.startswith("x.yaml:5: strategy.warm_start.campaign must be given beside a database URL")


def test_candidates_are_spread_over_actors_only_where_strategy_and_executor_can(error_lines: ErrorLines) -> None:
    text = "name: x\nobjective: {name: branin}\nbudget: {evaluations: 5}\ncomputing: {shards: 2}\n"
    assert error_lines(text + "strategy: {name: gp_ucb}\n") == [
        "x.yaml:4: computing.shards must be 1 with this strategy, bbkb can have more, got 2"
    ]
    assert error_lines(text + "workers: {executor: inline}\n") == [
        "x.yaml:4: computing.shards must be 1 without workers.executor ray, got 2"
    ]
    assert from_mapping({**SMALL, "computing": {"shards": 2, "threads": 2}}).computing.shards == 2
