"""The search space of a campaign file: conditions, forbidden clauses, ConfigSpace files, enqueued configurations;
and the schema, which accepts exactly the files that load."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import ConfigSpace
import jsonschema
import pytest
import yaml

from bbkb import Campaign, Optimizer, tune
from bbkb.objectives import configspace_file
from bbkb.objectives.objective import ObjectiveError
from bbkb.objectives.parameters import Choice, Range, Scalar, Space
from bbkb.objectives.sampling import make_candidates
from bbkb.objectives.space import SearchSpace
from bbkb.orchestrator.annotations import Section
from bbkb.orchestrator.bandit.strategies import STRATEGIES
from bbkb.orchestrator.campaign import settings as campaign_settings
from bbkb.orchestrator.campaign.settings import Settings, plain, plain_space
from bbkb.orchestrator.settings.loading import from_mapping, load
from bbkb.orchestrator.settings.schema import schema
from bbkb.orchestrator.settings.spaces import build_forbid, build_space
from bbkb.orchestrator.yaml_file import read
from bbkb.strategies import BBKB
from tests.orchestrator.settings.small import SMALL, ErrorLines, cases

HEAD = "name: x\nobjective: {command: echo 1, direction: maximize}\nbudget: {evaluations: 5}\n"
SPACE = """space:
  model: {choices: [svm, forest], weights: [3, 1]}
  C: {low: 1.0e-3, high: 1.0e3, log: true, when: {model: svm}}
  depth: {low: 1, high: 9, integer: true, when: {model: [forest]}}
  share: {low: 0, high: 1, step: 0.05}
"""


def settings_of(tmp_path: Path, text: str) -> Settings:
    file = tmp_path / "x.yaml"
    file.write_text(text)
    return load(file)


def test_space_loads_back() -> None:
    space = build_space(
        {
            "a": {"low": 1, "high": 2, "integer": True},
            "b": {"ordered": ["x", "y"], "when": [{"a": 1}, {"a": {"above": 1.5}}]},
            "c": {"choices": [1, 2], "weights": [1, 2], "when": {"b": ["x"]}},
        }
    )
    assert build_space(plain_space(space)) == space


def test_conditions_and_forbidden_clauses_load_back(tmp_path: Path) -> None:
    tail = "forbid: [{model: svm, share: {above: 0.5}}]\nenqueue: [{model: forest, depth: 3, share: 0.15}]\n"
    settings = settings_of(tmp_path, HEAD + SPACE + tail)
    assert settings.space["model"] == Choice(("svm", "forest"), weights=(3.0, 1.0))
    assert settings.space["C"] == Range(1e-3, 1e3, log=True, when={"model": "svm"})
    assert settings.forbid == ({"model": ("svm",), "share": {"above": 0.5}},)
    assert from_mapping(plain(settings)) == settings


# Sections below SPACE, in line 9 and below, and the beginning of the message.
SECTIONS = """\
forbid: [{modl: svm}]
=> 9: forbid.0.modl must name a parameter of the space (model, C, depth, share)
forbid:
  - {model: svn}
=> 10: forbid.0.model must be one of 'svm', 'forest', got 'svn'; did you
forbid: {model: svm} => 9: forbid must be a list such as
forbid: [{share: {abov: 1}}] => 9: forbid.0: share must be compared by above, below, at_least
forbid: [{C: 1.0}] => 9: forbid.0.C is a range of real numbers, which no value matches
enqueue: [{model: forest, C: 1.0}]
=> 9: enqueue.0.C must be left out: it exists only when model is svm
enqueue: [{depth: 2, C: 1.0}] => 9: enqueue.0: hardly any allowed configuration
enqueue: [{C: 1.0, share: 0.12}] => 9: enqueue.0.share must be 0 plus steps of 0.05
enqueue: [{model: svm, C: 1.0, share: 0.12}] => 9: enqueue.0.share must be 0 plus steps of 0.05
enqueue: [{model: forest, C: 1.0, depth: 2, share: 1}]
=> 9: enqueue.0.C must be left out: it exists only when model is svm
enqueue: [{lr: 1}] => 9: enqueue.0.lr is not a parameter of the space, which has model, C
enqueue: [1] => 9: enqueue.0 must be a mapping of parameters to values, got 1
"""
# Parameters beside `m` and `n`, which are in lines 5 and 6, and the beginning of the message.
PARAMETERS = """\
p: {low: false, high: true}
=> 7: space.p must have numbers as low and high, or choices: [false, true]
p: {low: 0, high: 1, when: {modl: svm}}
=> 7: space.p.when.modl must name a parameter of the space (m, n, p)
p: {low: 0, high: 1, when: {m: svn}}
=> 7: space.p.when.m must be one of 'svm', 'knn', got 'svn'; did you
p: {low: 0, high: 1, when: svm} => 7: space.p.when: must map parameters to values
p: {low: 0, high: 1, lgo: true} => 7: space.p.lgo is not a known key; did you mean 'log'?
p: {choices: [1], log: true} => 7: space.p.log is not a known key
p: {constant: 1, low: 0} => 7: space.p
p: {low: 0, high: 1, whn: {m: svm}} => 7: space.p.whn is not a known key; did you mean 'when'?
p: {low: 0, high: 1, step: 0.3} => 7: space.p.high must be low plus a whole number of steps
p: {choices: [a, b], weights: [1]}
=> 7: space.p.weights must be one number a choice, got 1 for 2 choices
p: {low: 0, high: 1, prior: 2} => 7: space.p.prior must be from 0 to 1, got 2
p: {ordered: [1, 2], default: 3} => 7: space.p.default must be one of 1, 2, got 3
p: {low: 0, high: 1, confidence: high}
=> 7: space.p.confidence needs prior, the value that is expected to be good, got 'high'
p: {low: 0, high: 1, prior: 0.5, confidence: sure}
=> 7: space.p.confidence must be 'low', 'medium' or 'high', got
p: {choices: [a, null], when: {m: svm}}
=> 7: space.p.when: its parameter must not have the value null
p: {repeat: m, space: {u: {low: 0, high: 1}}}
=> 7: space.p.repeat must name an integer parameter of the
p: {repeat: k, space: {u: {low: 0, high: 1}}}
=> 7: space.p.repeat must name an integer parameter of the
p: {repeat: n} => 7: space.p must have repeat and space only
p: {repeat: n, space: {u: {low: 1, high: 0}}} => 7: space.p.space.u.low must be < high
p: {repeat: n, space: {u: {low: 0, high: 1, when: {n: 2}}}}
=> 7: space.p.space.u.when must not name n
layer: {repeat: n, space: {units: {low: 5, high: 9}, drop: {low: 0, high: 1}}}
layer_1_units: {low: 0, high: 1}
=> 8: space.layer_1_units must not name a parameter layer_1_units: layer names one so already
layer_2_drop: {low: 0, high: 1}
layer: {repeat: n, space: {units: {low: 5, high: 9}, drop: {low: 0, high: 1}}}
=> 8: space.layer must not name a parameter layer_2_drop: layer_2_drop names one so already
a: {repeat: n, space: {b_2_u: {low: 0, high: 1}}}
a_1_b: {repeat: n, space: {u: {low: 0, high: 1}}}
=> 8: space.a_1_b must not name a parameter a_1_b_2_u: a names one so already
"""


@pytest.mark.parametrize(("tail", "message"), cases(SECTIONS))
def test_mistake_has_a_position_and_remedy(error_lines: ErrorLines, tail: str, message: str) -> None:
    (line,) = error_lines(HEAD + SPACE + tail)
    assert line.startswith(f"x.yaml:{message}")


def test_more_enqueued_configurations_than_evaluations_are_rejected(error_lines: ErrorLines) -> None:
    enqueue = [{"model": "forest", "depth": depth, "share": 1} for depth in range(1, 8)]
    (line,) = error_lines(f"{HEAD}{SPACE}enqueue: {enqueue}\n")
    assert line.startswith("x.yaml:9: enqueue must hold at most")


@pytest.mark.parametrize(("lines", "message"), cases(PARAMETERS))
def test_mistake_in_a_parameter_has_a_position_and_remedy(error_lines: ErrorLines, lines: str, message: str) -> None:
    space = "".join(f"  {line}\n" for line in lines.splitlines())
    head = f"{HEAD}space:\n  m: {{choices: [svm, knn]}}\n  n: {{low: 1, high: 3, integer: true}}\n"
    (refusal,) = error_lines(head + space)
    assert refusal.startswith(f"x.yaml:{message}"), refusal


def configspace_space() -> ConfigSpace.ConfigurationSpace:
    space = ConfigSpace.ConfigurationSpace()
    model = ConfigSpace.CategoricalHyperparameter("model", ["svm", "forest", "knn"], weights=[2, 1, 1])
    c = ConfigSpace.UniformFloatHyperparameter("svm:C", 1e-3, 1e3, log=True)
    size = ConfigSpace.OrdinalHyperparameter("size", ["s", "m", "l"])
    depth = ConfigSpace.UniformIntegerHyperparameter("depth", 1, 20)
    most = ConfigSpace.UniformIntegerHyperparameter("most", 1, 20, default_value=20)
    extra = ConfigSpace.NormalFloatHyperparameter("extra", mu=0, sigma=1, lower=-3, upper=3)
    space.add(model, c, size, depth, most, extra, ConfigSpace.Constant("kind", "x"))
    svm, large = ConfigSpace.EqualsCondition(c, model, "svm"), ConfigSpace.GreaterThanCondition(c, size, "s")
    space.add(ConfigSpace.AndConjunction(svm, large))
    other, low = ConfigSpace.NotEqualsCondition(extra, model, "svm"), ConfigSpace.LessThanCondition(extra, depth, 5)
    space.add(ConfigSpace.OrConjunction(other, low))
    knn = ConfigSpace.ForbiddenEqualsClause(model, "knn")
    space.add(ConfigSpace.ForbiddenAndConjunction(knn, ConfigSpace.ForbiddenInClause(size, ["m", "l"])))
    space.add(ConfigSpace.ForbiddenGreaterThanRelation(depth, most))
    return space


@pytest.mark.parametrize("ending", ["json", "yaml"])
def test_configspace_file_is_a_space(tmp_path: Path, ending: str) -> None:
    theirs = configspace_space()
    getattr(theirs, f"to_{ending}")(tmp_path / f"space.{ending}")
    settings = settings_of(tmp_path, f"{HEAD}space: space.{ending}\nforbid: [{{depth: 20}}]\n")
    assert from_mapping(plain(settings)) == settings
    assert len(settings.forbid) == 3, "the file's and the campaign's"
    candidates = make_candidates(SearchSpace(settings.space, settings.forbid), 300)
    for arm in range(len(candidates)):
        configuration = candidates.parameters(arm)
        ConfigSpace.Configuration(theirs, values=configuration)  # raises when it is not valid there
        assert configuration["depth"] != 20
    ours = SearchSpace(build_space(configspace_file.plain(theirs)[0]), build_forbid(configspace_file.plain(theirs)[1]))
    for sampled in theirs.sample_configuration(100):
        ours.code_of({name: value.item() if hasattr(value, "item") else value for name, value in sampled.items()})


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("none.json", None, "x.yaml:4: space: "),
        ("list.json", "[1]", "x.yaml:4: space: "),
        ("space.txt", "", "x.yaml:4: space: must name a ConfigSpace file (.json, .yaml, .yml)"),
        ("bad.json", '{"hyperparameters": [{"type": "x"}]}', "x.yaml:4: space: "),
    ],
)
def test_file_without_a_configspace_is_rejected(
    tmp_path: Path, error_lines: ErrorLines, name: str, content: Any, message: str
) -> None:
    if content is not None:
        (tmp_path / name).write_text(content)
    (line,) = error_lines(f"{HEAD}space: {name}\n")
    assert line.startswith(message), line


def test_missing_configspace_is_named_with_its_installation(
    tmp_path: Path, error_lines: ErrorLines, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "space.json").write_text("{}")
    monkeypatch.setitem(sys.modules, "ConfigSpace", None)
    monkeypatch.delitem(sys.modules, "bbkb.objectives.configspace_file", raising=False)
    (line,) = error_lines(f"{HEAD}space: space.json\n")
    assert 'pip install "ConfigSpace' in line


def test_schema_knows_conditions_and_files() -> None:
    document = schema()
    assert {"type": "string"}.items() <= document["properties"]["space"]["then"].items()
    assert "when" in document["$defs"]["Choice"]["properties"]
    assert document["properties"]["forbid"]["items"]["type"] == "object"
    assert document["properties"]["enqueue"]["items"]["type"] == "object"


def test_enqueued_configuration_is_completed_by_the_seed_and_recorded() -> None:
    tree = {
        "name": "x",
        "objective": {"command": "echo {model}", "direction": "maximize"},
        "space": {
            "model": {"choices": ["svm", "forest"]},
            "C": {"low": 0.1, "high": 10.0, "when": {"model": "svm"}},
            "depth": {"low": 1, "high": 9, "integer": True, "when": {"model": "forest"}},
            "rate": {"low": 0.0, "high": 1.0},
            "fixed": {"constant": 3},
        },
        "forbid": [{"model": "forest", "rate": {"above": 0.5}}],
        "enqueue": [{"rate": 0.123456789}, {"depth": 4}, {"model": "svm", "C": 1.0, "rate": 0.7}, {"depth": None}],
        "budget": {"evaluations": 5},
    }
    settings = from_mapping(tree)
    first, second, whole, third = settings.enqueue
    assert first["rate"] == 0.123456789
    assert set(first) - {"C", "depth"} == {"model", "rate", "fixed"}
    assert (second["model"], second["depth"]) == ("forest", 4)
    assert cast(float, second["rate"]) <= 0.5
    assert whole == {"model": "svm", "C": 1.0, "rate": 0.7}
    assert third["model"] == "svm"
    assert from_mapping(tree).enqueue == settings.enqueue
    assert from_mapping({**tree, "seed": 1}).enqueue != settings.enqueue
    assert from_mapping({**plain(settings), "seed": 1}).enqueue == settings.enqueue
    optimizer = Optimizer(settings.space, "maximize", enqueue=[{"rate": 0.25}])
    assert optimizer.ask(1)[0]["rate"] == 0.25
    with pytest.raises(ObjectiveError, match=r"^enqueue\.0\.rate must be from 0 to 1, got 7$"):
        Optimizer(settings.space, "maximize", enqueue=[{"rate": 7}])


def test_prior_is_rejected_if_the_strategy_does_not_use_it(error_lines: ErrorLines) -> None:
    (line,) = error_lines(HEAD + "space:\n  p: {low: 0, high: 1, prior: 0.5}\nstrategy: gp_ucb\n")
    assert line.startswith("x.yaml:5: space.p.prior needs the strategy bbkb with its default preset")


def test_forbidden_defaults_are_rejected(error_lines: ErrorLines) -> None:
    space = "space:\n  p: {low: 0, high: 1, default: 0.5}\n  c: {choices: [a, b], default: b}\n"
    (line,) = error_lines(HEAD + space + "forbid: [{p: {below: 0.7}, c: b}]\n")
    assert line.startswith("x.yaml:7: forbid must allow the default of p, c")


@pytest.mark.parametrize("strategy", ["bbkb", "uniform", "gp_ucb", "regularized_evolution"])
def test_defaults_are_evaluated_after_the_enqueued_configurations(strategy: str) -> None:
    space: Space = {
        "p": Range(1e-3, 1.0, log=True, default=0.02),
        "c": Choice(("a", "b")),
        "n": Range(0, 4, integer=True),
    }
    enqueue: list[dict[str, Scalar]] = [{"p": 0.5, "c": "b", "n": 1}]
    optimizer = Optimizer(space, "minimize", strategy=strategy, enqueue=enqueue)
    result = tune(
        lambda p, c, n: p, space, direction="minimize", evaluations=2, executor="inline", progress=False,
        settings={"strategy": strategy, "enqueue": enqueue},
    )  # fmt: skip
    expected = [*enqueue, {"p": 0.02, "c": "a", "n": 2}]
    assert [optimizer.ask(1)[0].parameters for _ in range(2)] == expected
    assert [trial.parameters for trial in result.trials] == expected


def test_published_presets_do_not_begin_at_the_center() -> None:
    space: Space = {"p": Range(1.0, 3.0), "q": Range(0.0, 1.0)}
    center = {"p": 2.0, "q": 0.5}
    calibrated = Optimizer(space, "minimize", strategy=BBKB())
    assert calibrated.ask(1)[0].parameters == center
    for strategy in (BBKB.paper(), BBKB.theory()):
        candidates = Optimizer(space, "minimize", strategy=strategy).candidates
        assert all(candidates.parameters(arm) != center for arm in range(len(candidates)))


def test_defaults_are_not_evaluated_if_values_are_known() -> None:
    tree = yaml.safe_load(HEAD + "space: {p: {low: 0, high: 1, default: 0.25}}\n")
    assert from_mapping(tree).enqueue == ({"p": 0.25},)
    known = {"known_results": [{"results": [{"parameters": {"p": 0.5}, "value": 1.0}]}]}
    assert from_mapping({**tree, **known}).enqueue == ()


BLOCK = """\
space:
  n: {low: 1, high: 3, integer: true}
  layer: {repeat: n, space: {units: {choices: [8, 64]}, drop: {low: 0, high: 1, when: {units: 64}}}}
"""


def test_block_is_repeated_for_each_layer(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text(HEAD + BLOCK)
    settings = load(tmp_path / "x.yaml")
    expected = [f"layer_{place}_{inner}" for place in (1, 2, 3) for inner in ("units", "drop")]
    assert list(settings.space) == ["n", *expected]
    assert settings.space["layer_2_drop"].when == ({"layer_2_units": (64,), "n": {"at_least": 2}},)
    assert from_mapping(plain(settings)).space == settings.space
    space = SearchSpace(settings.space)
    assert space.candidate({"n": 1, "layer_1_units": 64, "layer_1_drop": 0.5}).columns["layer_2_units"][0] is None


def space_size(n: int, **layers: object) -> int:
    return n


def test_optimizer_repeats_a_block(tmp_path: Path) -> None:
    block = {"repeat": "n", "space": {"units": {"choices": [8, 64]}}}
    optimizer = Optimizer({"n": Range(1, 2, integer=True), "layer": block}, "maximize")
    assert set(optimizer.candidates.columns) == {"n", "layer_1_units", "layer_2_units"}


def test_repeated_block_may_have_parameter_objects(tmp_path: Path) -> None:
    inner = {"units": Choice((8, 64)), "drop": Range(0, 1, when={"units": 64})}
    space: dict[str, Any] = {"n": Range(1, 2, integer=True), "layer": {"repeat": "n", "space": inner}}
    names = {f"layer_{place}_{name}" for place in (1, 2) for name in inner}
    assert set(Optimizer(space, "maximize").candidates.columns) == {"n", *names}
    assert set(Campaign(space_size, space, evaluations=2, direction="maximize").settings.space) == {"n", *names}


CONFIGS = sorted(Path(__file__).parents[3].joinpath("configs").glob("*.yaml"))
SCHEMA = schema()
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)


def test_schema_follows_draft_2020_12() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["$schema"] == "https://json-schema.org/draft/2020-12/schema"


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_shipped_campaign_conforms_as_written_and_as_resolved(path: Path) -> None:
    VALIDATOR.validate(read(path).tree)
    VALIDATOR.validate(plain(load(path)))


@pytest.mark.parametrize(
    "change",
    [
        {"worker": {}},
        {"budget": {}},
        {"seed": -1},
        {"strategy": {"name": "bbkbb"}},
        {"strategy": {"name": "bbkb", "regularisation": 1}},
        {"strategy": {"kernel": {"lengthscale": 1}}},
        {"strategy": {"kernel": {"name": "rfb"}}},
        {"strategy": {"name": "uniform", "kernel": {"name": "rbf"}}},
        {"space": {"a": {"low": 1}}},
        {"space": {"a": {"low": 1, "high": 2, "choices": [1]}}},
        {"objective": {"name": "brannin"}},
        {"objective": {"name": "branin", "options": {"noise": 1}}},
        {"objective": {"callable": "m:f", "direction": "maximize", "options": {"path": "m"}}},
        {"objective": {"command": "ls", "direction": "maximize", "options": {"command": "m", "direction": "maximize"}}},
        {"workers": {"executor": "cloud"}},
        {"budget": {"hours": 5}},
        {"constraints": [{"metric": "a"}]},
        {"objectives": [{"metric": "a", "direction": "up"}]},
    ],
)
def test_wrong_campaign_does_not_conform(change: dict[str, Any]) -> None:
    VALIDATOR.validate(SMALL)
    with pytest.raises(jsonschema.ValidationError):
        VALIDATOR.validate({**SMALL, **change})


@pytest.mark.parametrize(
    ("change", "place", "words"),
    [
        ({"space": {"a": {"low": 0, "high": 1}, "b": {"low": 1, "hihg": 2}}}, ["space", "b"], "hihg"),
        ({"space": {"a": {"choices": [1], "weights": "x"}}}, ["space", "a", "weights"], "'x'"),
        ({"space": {"a": {"constant": 1, "log": True}}}, ["space", "a"], "log"),
        ({"space": [1]}, ["space"], "'object'"),
        ({"strategy": {"name": "gp_ucb", "deltaa": 1}}, ["strategy"], "deltaa"),
        ({"strategy": {"delta": "x"}}, ["strategy", "delta"], "'x'"),
        ({"strategy": "nothing"}, ["strategy"], "nothing"),
        ({"early_stopping": {"rule": "median", "after": 0}}, ["early_stopping", "after"], "minimum"),
        ({"early_stopping": {"rule": "hyperband"}}, ["early_stopping", "rule"], "hyperband"),
        ({"early_stopping": {"reduction": 2}}, ["early_stopping"], "reduction"),
    ],
)
def test_mistake_is_shown_at_its_key_and_not_at_the_section(
    change: dict[str, Any], place: list[str], words: str
) -> None:
    errors = list(VALIDATOR.iter_errors({**SMALL, **change}))
    assert {tuple(error.absolute_path) for error in errors} == {tuple(place)}
    assert any(words in error.message for error in errors)


@pytest.mark.parametrize(
    "change",
    [
        {"budget": {"steps": 5}},
        {"budget": {"evaluations": 5, "stop_when": {"no_gain_of": 0.001, "in": 64}}},
        {"objectives": [{"metric": "a"}, {"metric": "b", "direction": "minimize"}]},
        {"constraints": [{"metric": "a", "at_least": 1}]},
        {"strategy": {"name": "mine:Strategy", "whatever": 1}},
        {"objective": {"name": "mine:Objective", "options": {"whatever": 1}}},
    ],
)
def test_campaign_conforms(change: dict[str, Any]) -> None:
    VALIDATOR.validate({**SMALL, **change})


def _undocumented_fields(schema: dict[str, Any], path: str) -> Iterator[str]:
    for name, field in schema.get("properties", {}).items():
        target = field.get("$ref", "").rpartition("/")[2]
        if not (field.get("description") or SCHEMA["$defs"].get(target, {}).get("description")):
            yield f"{path}.{name}"


def test_schema_describes_every_key_of_the_sections() -> None:
    sections = [name for name in SCHEMA["$defs"] if issubclass(getattr(campaign_settings, name, object), Section)]
    assert len(sections) >= 9
    missing = [
        *_undocumented_fields(SCHEMA, ""),
        *(m for name in sections for m in _undocumented_fields(SCHEMA["$defs"][name], name)),
    ]
    assert missing == []


@pytest.mark.parametrize("name", STRATEGIES)
def test_schema_describes_every_hyper_parameter_of_a_strategy(name: str) -> None:
    (definition,) = [
        d for d in SCHEMA["$defs"].values() if d.get("properties", {}).get("name", {}).get("const") == name
    ]
    assert list(_undocumented_fields(definition, name)) == []
