"""The keys of a campaign file, its defaults and its
resolved form."""

import json
import os
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from bbkb.objectives.parameters import Choice, Constant, Ordered, Range
from bbkb.objectives.problems.synthetic import Branin
from bbkb.orchestrator.bandit.model.model import Model
from bbkb.orchestrator.bandit.strategies import STRATEGIES
from bbkb.orchestrator.bandit.strategies.bbkb import BBKB
from bbkb.orchestrator.campaign.settings import ModelStopping, Settings, plain
from bbkb.orchestrator.settings.file import write
from bbkb.orchestrator.settings.loading import from_mapping, load
from bbkb.orchestrator.settings.options import load_objective, objective_of
from bbkb.orchestrator.settings.strategies import build_strategy
from tests.examples import examples
from tests.orchestrator.settings.small import HEAD, SMALL

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


@settings(max_examples=examples(60), deadline=None)
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
