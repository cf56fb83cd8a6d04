"""Objectives' options and strategies, built from mappings; presets, and their tables in docs/guarantees.md; changes."""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bbkb.strategies
from bbkb.orchestrator.bandit.kernels import Kernel
from bbkb.orchestrator.bandit.model.model import model_of
from bbkb.orchestrator.bandit.options import Options, Tagged
from bbkb.orchestrator.bandit.strategies import STRATEGIES
from bbkb.orchestrator.bandit.strategies.presets import with_preset
from bbkb.orchestrator.bandit.strategies.uniform import Uniform
from bbkb.orchestrator.bandit.strategy import Choose, Observation, never_waits
from bbkb.orchestrator.errors import ConfigError
from bbkb.orchestrator.running.resume import Change, differences, may_change
from bbkb.orchestrator.settings.loading import load
from bbkb.orchestrator.settings.mistakes import RefusalError
from bbkb.orchestrator.settings.options import build, dump
from bbkb.orchestrator.settings.strategies import build_strategy, dump_strategy


@dataclass(frozen=True)
class Round(Options):
    radius: float
    name: Literal["round"] = "round"


@dataclass(frozen=True)
class Square(Options):
    side: float
    name: Literal["square", "box"] = "square"


@dataclass(frozen=True)
class Figure:
    """It allows unknown keys by pydantic's default, as a user's own class may."""

    shape: Annotated[Round | Square, Tagged("name", (("round", Round), ("square", Square), ("box", Square)))]
    hole: Round | None = None
    count: int = 1

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ValueError(f"figure.count must be >= 1, got {self.count}")


def figure(options: dict[str, Any]) -> object:
    return build(Figure, options)


def _errors_of(make: Callable[[dict[str, Any]], object], options: dict[str, Any]) -> list[str]:
    with pytest.raises(RefusalError) as error:
        make(options)
    return [str(problem) for problem in error.value.problems]


def test_nested_dataclass_is_picked_by_its_name() -> None:
    built = build(Figure, {"shape": {"name": "box", "side": 2}, "hole": {"name": "round", "radius": 1}})
    assert built == Figure(Square(2.0, "box"), Round(1.0))
    assert build(Figure, dump(built)) == built


def test_mistakes_of_the_named_member_alone_are_reported() -> None:
    assert _errors_of(figure, {"shape": {"name": "round", "side": 1}}) == [
        "shape.radius is required",
        "shape.side is not a known key; valid names: radius, name",
    ]


def test_unknown_key_is_rejected_even_if_the_class_allows_it() -> None:
    assert _errors_of(figure, {"shape": {"name": "round", "radius": 1}, "counts": 2}) == [
        "counts is not a known key; did you mean 'count'?"
    ]


@dataclass(frozen=True)
class Covered:
    kernel: Kernel


def test_field_without_plain_values_is_named_with_a_supported_type() -> None:
    options = {"kernel": "rbf"}
    with pytest.raises(RefusalError) as error:
        build(Covered, options)
    assert [str(problem) for problem in error.value.problems] == [
        "kernel is a field of Covered with a type that no campaign file has, Kernel; take plain "
        "values, a dataclass of them, or bbkb.strategy.KernelOption for a kernel"
    ]


def test_wrong_part_is_not_reported_as_missing_too() -> None:
    assert _errors_of(figure, {"shape": {"name": "oval"}, "count": "x"}) == [
        "shape.name must be 'round', 'square' or 'box', got \"oval\"",
        'count must be a whole number, got "x"',
    ]


def test_error_of_the_class_itself_is_reported() -> None:
    assert _errors_of(figure, {"shape": {"name": "round", "radius": 1}, "count": 0}) == [
        ": figure.count must be >= 1, got 0"
    ]


@pytest.mark.parametrize("name", STRATEGIES)
def test_strategy_is_built_by_name_and_loads_back(name: str) -> None:
    built = build_strategy({"name": name})
    assert built == STRATEGIES[name](**with_preset(STRATEGIES[name], {}))
    assert dump_strategy(built)["name"] == name
    assert build_strategy(dump_strategy(built)) == built


@pytest.mark.parametrize("name", [name for name, cls in STRATEGIES.items() if hasattr(cls, "model")])
def test_paper_preset_and_an_explicit_kernel_give_the_published_algorithm(name: str) -> None:
    for options in ({"preset": "paper"}, {"kernel": {"name": "rbf"}}):
        built = build_strategy({"name": name, **options})
        assert model_of(built) is None
        assert build_strategy(dump_strategy(built)) == built
    assert build_strategy({"name": name, "preset": "paper"}) == STRATEGIES[name]()


def test_file_that_names_some_options_gets_the_newest_defaults() -> None:
    assert getattr(build_strategy({"name": "bbkb", "width": 1.5}), "coverage", 0.0) > 0.0
    noisy = model_of(build_strategy({"name": "bbkb", "model": {"noise": 0.1}}))
    assert noisy is not None
    assert (noisy.noise, noisy.first_fit) == (0.1, None)


def test_preset_that_is_unknown_or_contradicted_is_rejected() -> None:
    (message,) = _errors_of(build_strategy, {"preset": "best"})
    assert "preset must be one of calibrated, paper, theory" in message
    assert _errors_of(build_strategy, {"preset": "calibrated", "regularization": 1}) == [
        "preset must be paper if strategy.regularization is given, because calibrated settings fit the model"
    ]
    assert _errors_of(build_strategy, {"model": {"outputs": "square"}}) == [
        "model.outputs must be 'half_rank', 'rank', 'standardise' or 'raw', got \"square\""
    ]


@dataclass(frozen=True)
class Eager(Uniform):
    """A strategy of a user's own, which chooses for any pending pulls."""

    never_waits: ClassVar[bool] = True


@dataclass(frozen=True)
class Growing(Eager):
    """The same strategy with a rule for learning results."""

    mode: str = "async"
    refresh_growth: float = 0.1


def test_own_strategy_that_never_waits_must_be_asynchronous() -> None:
    (message,) = _errors_of(build_strategy, {"name": f"{__name__}:Eager"})
    assert message.startswith('name must have a field mode, "async"')
    assert getattr(build_strategy({"name": f"{__name__}:Growing"}), "refresh_growth") == 0.1  # noqa: B009
    (message,) = _errors_of(build_strategy, {"name": f"{__name__}:Growing", "mode": "batch"})
    assert "must have a field mode" in message
    assert never_waits(Eager())
    assert not never_waits(Uniform())


@dataclass(frozen=True)
class Lacking(Uniform):
    """A strategy without `posterior`."""

    posterior: ClassVar[None] = None  # type: ignore[assignment]


@dataclass(frozen=True)
class LackingMore(Lacking):
    """The same, which cannot continue a run."""

    restore: ClassVar[None] = None  # type: ignore[assignment]


def test_campaign_needs_all_methods_of_a_strategy_but_posterior() -> None:
    assert isinstance(build_strategy({"name": f"{__name__}:Lacking"}), Uniform)
    (message,) = _errors_of(build_strategy, {"name": f"{__name__}:LackingMore"})
    assert message == "name must have the methods init, ask, tell, recorded, restore; it lacks restore"


PAGE = Path(__file__).parents[3] / "docs" / "guarantees.md"
MODELED = [name for name in STRATEGIES if "model" in STRATEGIES[name].__dataclass_fields__]


def _table(header: str) -> list[list[str]]:
    """Return the cells of the page's table whose first line begins with `header`."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith(header))
    end = next(number for number in range(start, len(lines)) if not lines[number].startswith("|"))
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[start + 2 : end]]


def _shown(value: object) -> str:
    """Return a plain value as the page writes it."""
    match value:
        case None:
            return "none"
        case {"name": "rbf", "lengthscale": lengthscale}:
            return f"rbf, {lengthscale:g}"
        case {"name": name, "pulls": pulls}:
            return f"{name}, {pulls}"
        case float():
            return np.format_float_positional(value, trim="-")
        case str():
            return value
        case [*numbers]:
            return ", ".join(map(_shown, numbers))
        case _:
            return json.dumps(value)


def test_page_has_every_option_of_the_paper_preset_with_its_value() -> None:
    listed = {
        (name, option.strip("`")): value
        for option, names, value, *_ in _table("| option | strategies |")
        for name in (MODELED if names == "all" else names.split(", "))
    }
    resolved = {
        (name, option): _shown(value)
        for name in MODELED
        for option, value in dump_strategy(build_strategy({"name": name, "preset": "paper"})).items()
        if option != "name"
    }
    assert listed == resolved


def test_page_has_the_settings_that_the_theory_preset_changes_or_checks() -> None:
    listed = {
        option: value
        for options, values, *_ in _table("| option | `preset: theory` |")
        for option, value in zip(options.replace("`", "").split(", "), values.split(", "), strict=True)
    }
    theory = dump_strategy(build_strategy({"name": "bbkb", "preset": "theory"}))
    paper = dump_strategy(build_strategy({"name": "bbkb", "preset": "paper"}))
    assert listed == {option: _shown(theory[option]) for option in listed}
    assert {option for option in theory if theory[option] != paper[option]} <= listed.keys()


def _file(folder: Path, *options: str) -> Path:
    lines = [
        "name: x",
        "objective: {name: branin}",
        "candidates: {size: 64}",
        "budget: {evaluations: 100}",
        "strategy:",
    ]
    path = folder / "x.yaml"
    path.write_text("\n".join([*lines, "  preset: theory", *(f"  {option}" for option in options)]) + "\n")
    return path


@pytest.mark.parametrize(
    ("option", "condition"),
    [
        ("regularization: 0.5", ">= 1"),
        ("width: practical", "theory"),
        ("mode: async", "batch"),
        ("resampling: arms", "pulls"),
        ("dictionary_limit: 300", "left out"),
        ("local_covariance: paper", "embedded"),
        ("termination: ratio", "proven"),
        ("oversampling: 1500", ">= 1525.92"),  # 72 · 2 · log(4 · 100/0.01)
        ("verify: 0.1", "0"),
        ("coverage: 0.1", "0"),
        ("model: {noise: 0.1}", "left out"),
    ],
)
def test_theory_names_the_violated_condition_with_file_and_line(tmp_path: Path, option: str, condition: str) -> None:
    key = option.partition(":")[0]
    with pytest.raises(ConfigError) as refused:
        load(_file(tmp_path, option))
    (line,) = str(refused.value).splitlines()
    assert line.startswith(f"{tmp_path / 'x.yaml'}:7: strategy.{key} must be")
    assert condition in line


def test_theory_accepts_a_number_that_suffices_for_the_budget(tmp_path: Path) -> None:
    strategy = load(_file(tmp_path, "oversampling: 1526", "termination: global_then_local")).strategy
    assert (strategy["oversampling"], strategy["termination"]) == (1526.0, "global_then_local")


def test_theory_in_python_has_the_same_settings_and_conditions() -> None:
    assert bbkb.strategies.BBKB.theory() == build_strategy({"name": "bbkb", "preset": "theory"})
    with pytest.raises(ValueError, match=r"strategy\.oversampling must be theory"):  # the budget is unknown
        bbkb.strategies.BBKB.theory(oversampling=1e6)
    with pytest.raises(ValueError, match="not GPUCB"):
        bbkb.strategies.GPUCB.theory()


def test_growing_oversampling_keeps_every_pull_whose_variance_theory_keeps() -> None:
    """q̄_t = 72 C̃ log(4t/δ): with λ = 1 it exceeds 1/σ̃² of every pull here, so the dictionary has all pulled arms and
    the posterior is exact."""
    strategy = bbkb.strategies.BBKB.theory()
    arms = np.random.default_rng(0).random((60, 2))
    rng = np.random.default_rng(1)
    state = strategy.init(arms, rng)
    for _ in range(8):
        decision = strategy.ask(state, (), 20)
        assert isinstance(decision, Choose)
        state = strategy.tell(state, [Observation(p.arm, float(arms[p.arm].sum())) for p in decision.picks], rng)
    assert state.pulls.total > 15
    assert strategy.oversampling_after(100) == pytest.approx(72.0 * 2.0 * math.log(4.0 * 100 / 0.01))
    assert set(state.dictionary) == set(state.pulls.arms)


def test_preset_of_a_strategy_without_a_model_may_only_be_paper() -> None:
    built: Any = build_strategy({"name": "gp_threds", "preset": "paper"})
    assert built == STRATEGIES["gp_threds"]()
    with pytest.raises(ValueError, match="preset must be paper"):
        build_strategy({"name": "gp_threds", "preset": "calibrated"})


def test_kernels_warm_starts_widths_and_rules_have_public_names() -> None:
    from bbkb.strategies import RBF, RandomStart, Schedule, Termination, UncertaintyStart

    width: Schedule = "practical"
    rule: Termination = "global_then_local"
    start = UncertaintyStart(workers=4)
    made = bbkb.strategies.BBKB.paper(kernel=RBF(lengthscale=0.3), warm_start=start, width=width, termination=rule)
    written = {
        "preset": "paper",
        "kernel": {"name": "rbf", "lengthscale": 0.3},
        "warm_start": {"name": "uncertainty", "workers": 4},
        "width": "practical",
        "termination": "global_then_local",
    }
    assert made == build_strategy({"name": "bbkb", **written})
    optimizer = bbkb.Optimizer(
        {"x": bbkb.Range(0.0, 1.0)}, "minimize", strategy=bbkb.strategies.BKB.paper(warm_start=RandomStart(3))
    )
    for _ in range(4):
        (trial,) = optimizer.ask()
        optimizer.tell(trial, 1.0)


def test_differences_are_reported_by_dotted_keys() -> None:
    old = {"seed": 0, "budget": {"evaluations": 5, "hours": None}, "list": [1, 2], "gone": {"a": 1}}
    new = {"seed": 0, "budget": {"evaluations": 9, "hours": None}, "list": [2, 1], "come": {}}
    assert differences(old, new) == [
        Change("budget.evaluations", 5, 9),
        Change("list", [1, 2], [2, 1]),
        Change("gone.a", 1, None),
        Change("come", None, {}),
    ]


def test_removed_null_is_a_difference() -> None:
    assert differences({"a": None}, {}) == [Change("a", None, None)]


_tree = st.recursive(
    st.integers(0, 2), lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3), max_leaves=6
).filter(lambda tree: isinstance(tree, dict))


@given(old=_tree, new=_tree)
def test_differences_are_empty_exactly_for_equal_settings(old: dict[str, Any], new: dict[str, Any]) -> None:
    assert bool(differences(old, new)) == (old != new)
    mirrored = {(change.key, change.old, change.new) for change in map(_hashable, differences(new, old))}
    assert {(change.key, change.new, change.old) for change in map(_hashable, differences(old, new))} == mirrored


def _hashable(change: Change) -> Change:
    return Change(change.key, str(change.old), str(change.new))


@pytest.mark.parametrize("key", ["budget.evaluations", "budget", "workers.simulation.sigma", "objective.deterministic"])
def test_budget_and_workers_may_change(key: str) -> None:
    assert may_change(key)


@pytest.mark.parametrize("key", ["seed", "budgets", "strategy.budget", "space.workers.low", "store"])
def test_other_settings_may_not_change(key: str) -> None:
    assert not may_change(key)
