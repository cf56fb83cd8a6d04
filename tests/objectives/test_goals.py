"""`bbkb.objectives.goals`: objectives and constraints as people write them in Python."""

import pytest

from bbkb import Constraint, Objective, Optimizer, Range
from bbkb.objectives.goals import as_section


def test_objective_and_constraint_become_sections_of_a_campaign_file() -> None:
    assert as_section(Objective("gain")) == {"metric": "gain", "direction": "maximize"}
    assert as_section(Objective("cost", "minimize", reference=2.0)) == {
        "metric": "cost",
        "direction": "minimize",
        "reference": 2.0,
    }
    assert as_section(Constraint("risk", at_most=0.5)) == {"metric": "risk", "at_most": 0.5}
    assert as_section({"metric": "risk"}) == {"metric": "risk"}


def test_optimizer_treats_objects_and_mappings_alike() -> None:
    space = {"x": Range(0.0, 1.0)}
    from_objects = Optimizer(
        space,
        objectives=[Objective("gain"), Objective("cost", "minimize")],
        constraints=[Constraint("risk", at_most=0.5)],
    )
    from_mappings = Optimizer(
        space,
        objectives=[{"metric": "gain"}, {"metric": "cost", "direction": "minimize"}],
        constraints=[{"metric": "risk", "at_most": 0.5}],
    )
    assert repr(from_objects) == repr(from_mappings)
    assert from_objects.metrics == from_mappings.metrics == ("gain", "cost", "risk")
    assert from_objects.ask(3) == from_mappings.ask(3)


def test_constraint_without_a_bound_is_rejected() -> None:
    with pytest.raises(ValueError, match="must have at_most or at_least beside metric: risk"):
        Optimizer({"x": Range(0.0, 1.0)}, constraints=[Constraint("risk")])
