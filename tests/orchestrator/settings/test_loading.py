"""Reading a campaign file: keys, defaults, relative paths, resolved form, line numbers, rejected files."""

import json
import os
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from bbkb.objectives.command import ShellCommand
from bbkb.objectives.external import PythonCallable
from bbkb.objectives.parameters import Choice, Constant, Ordered, Range
from bbkb.objectives.problems.synthetic import Branin
from bbkb.orchestrator import yaml_file
from bbkb.orchestrator.bandit.model.model import Model
from bbkb.orchestrator.bandit.strategies import STRATEGIES
from bbkb.orchestrator.bandit.strategies.bbkb import BBKB
from bbkb.orchestrator.campaign.settings import (
    ModelStopping,
    Name,
    Settings,
    StopWhen,
    name_from,
    plain,
    without_implied,
)
from bbkb.orchestrator.errors import ConfigError
from bbkb.orchestrator.settings.loading import checked_goals, from_mapping, load
from bbkb.orchestrator.settings.options import load_objective, objective_of
from bbkb.orchestrator.settings.strategies import build_strategy
from bbkb.orchestrator.yaml_file import Document, check_texts, read, with_overrides, write
from tests.orchestrator.settings.small import HEAD, SMALL


def test_relative_paths_refer_to_the_folder_of_the_campaign_file(tmp_path: Path) -> None:
    folder = tmp_path / "below"
    folder.mkdir()
    (folder / "x.yaml").write_text(
        "name: x\nbudget: {evaluations: 5}\nobjective: {callable: 'm:f', direction: maximize}\n"
        "candidates: {table: t.csv}\nstore: sqlite:///log.db\ndata: {folder: sets}\nruns: out\n"
    )
    loaded = load(folder / "x.yaml")
    assert loaded.candidates.table == str(folder / "t.csv")
    assert loaded.data.folder == str(folder / "sets")
    assert loaded.store == f"sqlite:///{folder / 'log.db'}"
    assert objective_of(loaded.objective) == PythonCallable("m:f", (str(folder), str(Path.cwd())))
    assert loaded.runs == str(Path.cwd() / "out"), "results belong where the user is"
    assert load(folder / "x.yaml", ["store=sqlite:////db"]).store == "sqlite:////db"
    assert load(folder / "x.yaml", ["store=postgresql://h/db"]).store == "postgresql://h/db"


def test_folder_of_the_file_is_searched_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(
        "name: x\nbudget: {evaluations: 5}\nobjective: {callable: 'm:f', direction: maximize}\n"
        "space: {a: {low: 0, high: 1}}\n"
    )
    monkeypatch.chdir(tmp_path)
    assert objective_of(load(file).objective) == PythonCallable("m:f", (str(tmp_path),))
    twice = {"search_paths": [str(tmp_path)] * 2}
    recorded = load(file, [f"objective.options={twice}"])
    assert plain(from_mapping(plain(recorded))) == plain(recorded)
    assert objective_of(recorded.objective) == PythonCallable("m:f", (str(tmp_path),) * 2)


def test_command_runs_beside_the_campaign_file(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text(
        "name: x\nbudget: {evaluations: 5}\n"
        "objective: {command: 'run {a}', direction: maximize, options: {memory_bytes: 5}}\n"
        "space: {a: {low: 0, high: 1}}\n"
    )
    loaded = load(tmp_path / "x.yaml")
    assert objective_of(loaded.objective) == ShellCommand("run {a}", str(tmp_path), memory_bytes=5)
    assert load_objective(loaded.objective, loaded.data) == objective_of(loaded.objective)
    assert from_mapping(plain(loaded)) == loaded
    elsewhere = load(tmp_path / "x.yaml", ["objective.options={working_directory: ..}"])
    assert elsewhere.objective.options is not None
    assert elsewhere.objective.options["working_directory"] == str(tmp_path.parent)


def test_data_folder_of_the_environment_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BBKB_DATA", str(tmp_path))
    tree = {"name": "x", "objective": {"name": "sine"}, "budget": {"evaluations": 3}}
    resolved = plain(from_mapping(tree))
    monkeypatch.delenv("BBKB_DATA")
    assert from_mapping(resolved).data.folder == str(tmp_path)
    assert from_mapping(tree).data.folder is None


CONFIGS = sorted(Path(__file__).parents[3].joinpath("configs").glob("*.yaml"))


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_shipped_campaign_loads_and_loads_back_from_its_resolved_form(path: Path, tmp_path: Path) -> None:
    shipped = load(path)
    resolved = plain(shipped)
    assert from_mapping(resolved) == shipped
    assert json.loads(json.dumps(resolved)) == resolved
    (tmp_path / "campaign.yaml").write_text(write(resolved))
    assert load(tmp_path / "campaign.yaml") == shipped


def test_smallest_campaign_gets_every_default() -> None:
    small = from_mapping(SMALL)
    strategy = build_strategy(small.strategy)
    assert isinstance(strategy, BBKB)
    assert strategy.model == Model(first_fit=None)
    assert strategy.wait == "never"
    assert small.space == {"x": Range(0.0, 1.0), "y": Range(0.0, 1.0)}, "the objective's own space"
    assert (small.workers.executor, small.workers.count) == ("ray", os.cpu_count())
    assert (small.seed, small.store, small.objective.direction) == (0, "sqlite", "maximize")
    assert small.runs == str(Path.cwd() / "runs")
    assert plain(small)["strategy"]["name"] == "bbkb"


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
    assert objective_of(built.objective) == Branin(noise_std=0)
    assert built.space == {
        "x": Range(1e-3, 1, log=True),
        "y": Choice(("a", 1, 2.5)),
        "z": Ordered((1, 2)),
        "w": Constant("c"),
    }
    strategy = build_strategy(built.strategy)
    assert isinstance(strategy, BBKB)
    assert strategy.kernel.name == "matern52"
    assert strategy.kernel.lengthscale == (0.5, 1.0)
    assert load_objective(built.objective, built.data) is not None


def test_budget_of_steps_alone_bounds_the_evaluations() -> None:
    for steps in (7, 7.0):  # as 7e0 is read
        settings = from_mapping({**SMALL, "budget": {"steps": steps}})
        assert (settings.budget.steps, settings.budget.evaluations) == (7, 7)


def test_override_wins_over_the_file(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text(HEAD)
    changed = load(
        tmp_path / "x.yaml", ["strategy.ratio_threshold=3", "budget.evaluations=7", "workers.timeout_seconds=1e2"]
    )
    assert (changed.strategy["ratio_threshold"], changed.budget.evaluations) == (3.0, 7)
    assert changed.workers.timeout_seconds == 100.0


def test_table_with_a_target_is_the_objective() -> None:
    table = {"name": "x", "budget": {"evaluations": 5}, "candidates": {"table": "/t.csv", "target": "y"}}
    loaded = from_mapping({**table, "objective": {"direction": "minimize"}})
    assert load_objective(loaded.objective, loaded.data) is None
    assert from_mapping(plain(loaded)) == loaded


def test_objective_with_its_own_candidates_needs_no_space() -> None:
    assert from_mapping({**SMALL, "objective": {"name": "abalone"}}).space == {}


def test_strategy_may_be_any_importable_class() -> None:
    cls = STRATEGIES["uniform"]
    named = from_mapping({**SMALL, "strategy": {"name": f"{cls.__module__}:{cls.__qualname__}"}})
    listed = from_mapping({**SMALL, "strategy": {"name": "uniform"}})
    assert build_strategy(named.strategy) == build_strategy(listed.strategy)


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
        "objective": st.sampled_from(
            [
                {"callable": "a.b:c", "direction": "maximize"},
                {"command": "run", "direction": "maximize"},
                {"name": "branin"},
            ]
        ),
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


@given(campaign=_campaign)
def test_resolved_settings_are_plain_values_and_load_back(campaign: dict[str, Any]) -> None:
    loaded = from_mapping(campaign)
    resolved = plain(loaded)
    assert from_mapping(json.loads(json.dumps(resolved))) == loaded
    assert from_mapping(yaml.safe_load(write(resolved))) == loaded
    assert set(resolved) == {field.name for field in fields(Settings)}


@pytest.mark.parametrize("section", [{}, {"last_step": 27}])
def test_early_stopping_without_a_rule_is_that_of_the_model(section: dict[str, Any]) -> None:
    settings = from_mapping({**SMALL, "early_stopping": section})
    assert settings.early_stopping == ModelStopping(**section)


NAMES: TypeAdapter[str] = TypeAdapter(Name)


@given(st.text("aZ0_.-< é…\n", max_size=100))
def test_name_from_any_text_is_allowed_and_allowed_names_are_unchanged(text: str) -> None:
    name = name_from(text)
    assert NAMES.validate_python(name) == name
    assert name_from(name) == name


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("train", "train"),
        ("my_train-2.1", "my_train-2.1"),
        ("<lambda>", "lambda"),
        ("my größe", "my-gr-e"),
        ("__init__", "init"),
        ("a" * 70, "a" * 64),
        ("…", "campaign"),
    ],
)
def test_letters_that_are_not_allowed_become_a_hyphen(text: str, name: str) -> None:
    assert name_from(text) == name


def test_without_implied_removes_evaluations_that_follow_from_steps() -> None:
    tree = {"name": "demo", "budget": {"steps": 800, "evaluations": 800, "hours": 2.0}}
    assert without_implied(tree) == {"name": "demo", "budget": {"steps": 800, "hours": 2.0}}
    for budget in ({"steps": 800, "evaluations": 50}, {"steps": None, "evaluations": 50}, {}):
        assert without_implied({"budget": budget}) == {"budget": budget}


def test_stop_rules_are_read_written_and_read_again() -> None:
    rules = {"no_gain_of": 0.001, "in": 64, "expected_gain_below": "noise"}
    settings = from_mapping({**SMALL, "budget": {"evaluations": 5, "stop_when": rules}})
    assert from_mapping(plain(settings)) == settings
    expected = StopWhen(no_gain_of=0.001, within=64, expected_gain_below="noise")
    assert settings.budget.stop_when == expected
    assert from_mapping(SMALL).budget.stop_when is None


def test_goals_are_read_and_read_back_and_the_direction_is_that_of_the_first() -> None:
    turned = [{"metric": "loss", "direction": "minimize"}, {"metric": "accuracy", "reference": 0.5}]
    settings = from_mapping({**SMALL, "objectives": turned, "constraints": [{"metric": "memory", "at_most": 4}]})
    assert settings.objective.direction == "minimize"
    assert settings.constraints[0].at_most == 4
    assert from_mapping(plain(settings)) == settings
    assert json.loads(json.dumps(plain(settings)))["objectives"][1]["reference"] == 0.5


def test_target_beside_a_constraint_is_a_value_that_satisfies_it() -> None:
    constraints = [{"metric": "memory", "at_most": 4}]
    from_mapping({**SMALL, "constraints": constraints, "budget": {"evaluations": 5, "target": 1}})


def test_goals_of_a_caller_without_a_file_are_checked_too() -> None:
    with pytest.raises(ValueError, match=r"objectives\.0\.metric is required"):
        checked_goals({"objectives": [{}], "constraints": []}, object())
    with pytest.raises(ValueError, match="bbkb and uniform"):
        checked_goals({"objectives": [{"metric": "a"}, {"metric": "b"}], "constraints": []}, object())


def test_wrong_direction_of_the_first_objective_is_reported_once() -> None:
    with pytest.raises(ConfigError) as refused:
        from_mapping({**SMALL, "objectives": [{"metric": "a", "direction": "up"}]})
    assert str(refused.value) == "settings: objectives.0.direction must be 'minimize' or 'maximize', got \"up\""


def _file(folder: Path, text: str | bytes) -> Path:
    path = folder / "x.yaml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def _scalar(folder: Path, text: str) -> Any:
    return read(_file(folder, f"key: {text}\n")).tree["key"]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-4", 1e-4),
        ("1E6", 1e6),
        ("1.0e-4", 1e-4),
        (".5", 0.5),
        ("-3", -3),
        ("2.", 2.0),
        (".inf", float("inf")),
        ("true", True),
        ("null", None),
        ("", None),
    ],
)
def test_numbers_and_words_are_read_as_a_person_means_them(tmp_path: Path, text: str, value: object) -> None:
    got = _scalar(tmp_path, text)
    assert got == value
    assert type(got) is type(value)


@pytest.mark.parametrize("text", ["on", "no", "12:30", "2024-01-01", "010", "0x10", "1_000", "e5", "1e", "'1e-4'"])
def test_text_that_other_yaml_readers_convert_stays_text(tmp_path: Path, text: str) -> None:
    assert _scalar(tmp_path, text) == text.strip("'")


def test_keys_and_entries_have_line_numbers(tmp_path: Path) -> None:
    path = _file(tmp_path, "a:\n  b: 1\n  c:\n    - 2\n    - 3\n# comment\nd: {e: 4,\n    f: 5}\n")
    places = read(path).places
    lines = {".".join(map(str, keys)): int(place.rpartition(":")[2]) for keys, place in places.items()}
    assert lines == {"a": 1, "a.b": 2, "a.c": 3, "a.c.0": 4, "a.c.1": 5, "d": 7, "d.e": 7, "d.f": 8}


def test_unwritten_key_has_the_line_of_its_nearest_parent(tmp_path: Path) -> None:
    path = _file(tmp_path, "a: 1\nb:\n  c: 2\n")
    assert read(path).place(("b", "missing", "deeper")) == f"{path}:2"
    assert read(path).place(("missing",)) == str(path)


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("a: 1\nb:\n\tc: 2\n", 3, "a tab cannot be used"),
        ("a: 1\nb: [1, 2\n", 3, "not valid YAML"),
        ("a: &a {x: 0}\nb:\n  <<: *a\n", 3, "the merge key << is not part of YAML 1.2; write out its keys"),
        ("a: 1\nb: *nowhere\n", 2, "undefined alias"),
        ("a: 1\n? [x]\n: 2\n", 2, "a key must be a single word"),
        ("a: 1\nb: !!python/object/apply:os.getcwd []\n", 2, "is not allowed"),
        ("a: 1\nb: !!int many\n", 2, "'many' is not a valid int"),
        ("a: 1\nb: !!timestamp 2024-01-01\n", 2, "is not allowed"),
        ("a: 1\n---\nb: 2\n", 2, "not valid YAML"),
        ("a: 1\nb: \x00\n", 2, "U+0000 is not allowed"),
        ("a: &loop [*loop]\n", 1, "contain themselves"),
        ("a: " + "[" * 5000 + "\n", 1, "nested at most about 300 levels"),
        ("a: " + "9" * 5000 + "\n", 1, "is not a valid int"),
        (b"a: 1\nb: caf\xe9\n", 2, "must be UTF-8 text, got byte 0xe9"),
    ],
)
def test_unreadable_file_is_rejected_with_the_line(tmp_path: Path, text: str | bytes, line: int, words: str) -> None:
    path = _file(tmp_path, text)
    with pytest.raises(ConfigError) as refused:
        read(path)
    assert str(refused.value).startswith(f"{path}:{line}: ")
    assert words in str(refused.value)


@pytest.mark.parametrize(("text", "key"), [('b: "x\\0y"', "b"), ('b: [1, "\\ud800"]', "b.1"), ('"\\0": 2', r"\x00")])
def test_text_that_no_database_can_hold_is_rejected_with_line_and_key(tmp_path: Path, text: str, key: str) -> None:
    path = _file(tmp_path, f"a: 1\n{text}\n")
    with pytest.raises(ConfigError, match=re.escape(f"{path}:2: {key} must hold neither NUL nor")):
        check_texts(read(path))


def test_duplicate_key_is_rejected_with_both_lines(tmp_path: Path) -> None:
    path = _file(tmp_path, "a:\n  b: 1\n  c: 2\n  b: 3\n")
    with pytest.raises(ConfigError) as refused:
        read(path)
    assert str(refused.value) == f"{path}:4: a.b is given twice, first at {path}:2; keep one of the two"


def test_anchors_cannot_expand_a_file_without_limit(tmp_path: Path) -> None:
    levels = [f"l{i}: &l{i} [{', '.join([f'*l{i - 1}'] * 9)}]" for i in range(1, 10)]
    with pytest.raises(ConfigError, match=f"at most {yaml_file.MAX_VALUES} values"):
        read(_file(tmp_path, "\n".join(["l0: &l0 [lol]", *levels])))


@pytest.mark.parametrize(("text", "got"), [("", "nothing"), ("# only\n", "nothing"), ("- 1\n", "list"), ("x", "text")])
def test_file_without_a_mapping_is_rejected(tmp_path: Path, text: str, got: str) -> None:
    with pytest.raises(ConfigError, match=f"must be a mapping .*got .*{got}"):
        read(_file(tmp_path, text))


def test_missing_file_a_folder_and_a_device_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        read(tmp_path / "none.yaml")
    for path in (Path("/dev/zero"), tmp_path):
        with pytest.raises(ConfigError, match="must be a regular file, got a folder or a device"):
            read(path)


def test_byte_order_mark_and_windows_line_ends_are_accepted(tmp_path: Path) -> None:
    path = _file(tmp_path, b"\xef\xbb\xbfa: 1\r\nb: two\r\n")
    document = read(path)
    assert document.tree == {"a": 1, "b": "two"}
    assert document.place(("b",)) == f"{path}:2"


def test_override_replaces_or_adds_a_key_and_has_a_position() -> None:
    tree = {"a": {"b": 1, "c": {"d": 2}}, "e": None}
    document = Document(tree, {("a",): "f:1", ("a", "b"): "f:2", ("a", "c"): "f:3", ("a", "c", "d"): "f:4"}, "f")
    changed = with_overrides(document, ["a.c={x: 1e-3}", "e.f.g=[1, 2]"])
    assert changed.tree == {"a": {"b": 1, "c": {"x": 1e-3}}, "e": {"f": {"g": [1, 2]}}}
    assert changed.place(("a", "b")) == "f:2"
    assert changed.place(("a", "c", "x")) == changed.place(("a", "c", "d")) == "--set a.c={x: 1e-3}"
    assert changed.place(("e", "f", "g", 1)) == "--set e.f.g=[1, 2]"
    assert tree == {"a": {"b": 1, "c": {"d": 2}}, "e": None}, "the document given must not change"


def test_override_given_last_wins() -> None:
    assert with_overrides(Document({}, {}, "f"), ["a=1", "a=2=3"]).tree == {"a": "2=3"}


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("a", "must be written key.key=value"),
        ("=1", "must be written key.key=value"),
        ("a..b=1", "must be written key.key=value"),
        ("a.b=1", "a is a number; only mappings"),
        ("c.d=1", "c is a list; only mappings"),
        ("x=[1", "not valid YAML"),
        ("x={y: 1, y: 2}", "x.y is given twice"),
        ("a" + ".a" * 50 + "=1", "must have at most 20 parts, got 51"),
    ],
)
def test_bad_override_is_rejected_by_its_own_name(override: str, words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        with_overrides(Document({"a": 1, "c": [1]}, {}, "f"), [override])
    assert str(refused.value).startswith(f"--set {override}: ")
    assert words in str(refused.value).replace("y is given", "x.y is given")


def test_long_override_is_cut_in_messages() -> None:
    with pytest.raises(ConfigError) as refused:
        with_overrides(Document({}, {}, "f"), ["a" + ".a" * 5000 + "=1"])
    assert len(str(refused.value)) < 300


_plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.sampled_from(["1e-4", "010"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(tree=st.dictionaries(st.text(), _plain, max_size=4))
def test_written_file_is_read_again_here_and_by_other_readers(
    tmp_path_factory: pytest.TempPathFactory, tree: dict[str, Any]
) -> None:
    path = tmp_path_factory.getbasetemp() / "written.yaml"
    path.write_text(write(tree), encoding="utf-8", newline="")
    assert read(path).tree == tree
    assert yaml.safe_load(write(tree)) == tree


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param("x: [" + "0, " * 200_001 + "0]", "it must hold at most 100000 values", marks=pytest.mark.thorough),
        ("x: " + "0" * 5_000_000, "a campaign file must have at most 4,000,000 bytes, got 5,000,003"),
    ],
)
def test_file_that_is_far_too_large_is_rejected_before_it_is_composed(
    tmp_path: Path, content: str, message: str
) -> None:
    (tmp_path / "x.yaml").write_text(content)
    with pytest.raises(ConfigError, match=message):
        read(tmp_path / "x.yaml")
