"""The reference lists the options of strategies from the annotations of their fields
(docs/extensions/options.py)."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from bbkb.orchestrator.annotations import documentation_of
from bbkb.orchestrator.bandit.strategies import STRATEGIES

EXTENSION = Path(__file__).parents[1] / "docs" / "extensions" / "options.py"


@pytest.fixture(scope="module")
def extension() -> ModuleType:
    pytest.importorskip("griffe", reason="griffe comes with the extra docs")
    spec = importlib.util.spec_from_file_location("reference_options", EXTENSION)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", STRATEGIES)
def test_option_of_a_strategy_has_a_row_with_its_description(extension: ModuleType, name: str) -> None:
    strategy = STRATEGIES[name]
    rows = {row.name: row.description for row in extension.parameters(strategy)}
    assert rows == documentation_of(strategy)


def test_row_has_type_and_default_of_the_field(extension: ModuleType) -> None:
    rows = {row.name: row for row in extension.parameters(STRATEGIES["bbkb"])}
    assert (rows["delta"].annotation, rows["delta"].value) == ("float", "0.01")
    assert rows["resampling"].value == "'arms'"


def test_page_of_a_class_has_the_rows(extension: ModuleType) -> None:
    griffe = sys.modules["griffe"]
    loaded = griffe.load("bbkb", extensions=griffe.Extensions(extension.OptionsFromAnnotations()))
    strategy = loaded["orchestrator.bandit.strategies.gp_ucb.GPUCB"]
    tables = [section.value for section in strategy.docstring.parsed if section.kind.value == "parameters"]
    assert {row.name for table in tables for row in table} == set(documentation_of(STRATEGIES["gp_ucb"]))
