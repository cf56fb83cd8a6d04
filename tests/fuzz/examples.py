"""The number of examples in fuzz tests: a few of each property in every test run, thousands with
`make fuzz`."""

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

MANY = 2_600  # of each of the properties, 10⁴ together
FEW = 25

_FUZZ = [pytest.mark.fuzz, pytest.mark.timeout(3600)]  # six minutes on a busy machine
few_or_many = pytest.mark.parametrize(
    "examples", [pytest.param(FEW, id="few"), pytest.param(MANY, id="many", marks=_FUZZ)]
)

# values of YAML and JSON
scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(min_value=-(10**40), max_value=10**40)
    | st.floats()
    | st.text(max_size=30)
    | st.sampled_from(["", "~", "1e400", "${HOME}", "/dev/zero", "..", "\x00", "\x1b[2J", "{x}", "name: y", "=1+1"])
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=8,
)


def check_reason(error: Exception) -> None:
    """A rejection must have a reason."""
    assert str(error)


def check_examples(examples: int, strategy: st.SearchStrategy[object], check: Callable[[object], None]) -> None:
    """Check the property for this number of examples."""

    @settings(
        max_examples=examples,
        deadline=None,
        derandomize=examples == FEW,  # the same ones with every test run
        suppress_health_check=list(HealthCheck),
        print_blob=True,
    )
    @given(strategy)
    def property_(example: object) -> None:
        check(example)

    property_()
