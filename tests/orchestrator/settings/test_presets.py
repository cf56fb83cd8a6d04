"""Tests of the presets of strategies (bandit/strategies/presets.py) as campaign files use them, and of the tables in
docs/guarantees.md, which have every option of `preset: paper` and `preset: theory`."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bbkb.strategies
from bbkb.orchestrator.bandit.strategies import STRATEGIES
from bbkb.orchestrator.bandit.strategy import Choose, Observation
from bbkb.orchestrator.errors import ConfigError
from bbkb.orchestrator.settings.loading import load
from bbkb.orchestrator.settings.strategies import build_strategy, dump_strategy

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
