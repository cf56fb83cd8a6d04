"""The hyper-parameters of BBKB: their ranges and their sources."""

import pytest
from pydantic import TypeAdapter, ValidationError

from orchestrator.bandit.kernels import Matern52
from orchestrator.bandit.start.warm_start import UncertaintyStart
from orchestrator.bandit.strategies.bbkb import BBKB


def test_bbkb_can_be_built_from_a_plain_mapping() -> None:
    adapter = TypeAdapter(BBKB)
    mapping = {
        "kernel": {"name": "matern52", "lengthscale": [0.5, 2]},
        "warm_start": {"name": "uncertainty", "max_pulls": 9},
        "ratio_threshold": 3,
    }
    expected = BBKB(kernel=Matern52((0.5, 2.0)), warm_start=UncertaintyStart(max_pulls=9), ratio_threshold=3.0)
    assert adapter.validate_python(mapping) == expected
    assert adapter.validate_json(adapter.dump_json(expected)) == expected
    with pytest.raises(ValidationError, match="Input should be greater than 0"):
        adapter.validate_python({"regularization": -1})
