"""Options of strategies, checked in one pass, and the protocol of a strategy."""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Annotated, Any, Literal, Protocol, runtime_checkable

import numpy as np
import pytest
from annotated_types import Ge, Gt, Lt
from typing_extensions import Doc

from bbkb.orchestrator.annotations import documentation_of
from bbkb.orchestrator.bandit.kernels import KERNELS, RBF, AnyKernel, Linear, Matern32, Matern52
from bbkb.orchestrator.bandit.model.model import Model
from bbkb.orchestrator.bandit.options import AnyNumber, Like, check_options, excerpt
from bbkb.orchestrator.bandit.scheduling import Schedule, WidthOptions, information_gain, information_growth, rkhs_width
from bbkb.orchestrator.bandit.sparse.posterior import SparseModel
from bbkb.orchestrator.bandit.sparse.state import SparseState, initial_state
from bbkb.orchestrator.bandit.start.warm_start import WARM_STARTS
from bbkb.orchestrator.bandit.strategies import STRATEGIES
from bbkb.orchestrator.bandit.strategy import Observation, Wait, refusal, require, sequential_refusal

LISTED: dict[str, tuple[type[Any], str]] = {
    **{name: (cls, "strategy") for name, cls in STRATEGIES.items()},
    **{name: (cls, "strategy.warm_start") for name, cls in WARM_STARTS.items()},
    **{name: (cls, "strategy.kernel") for name, cls in KERNELS.items()},
    "model": (Model, "model"),
}

_DEFAULT = RBF()


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


@runtime_checkable
class Part(Protocol):
    def act(self) -> None: ...


class Mine:
    def act(self) -> None: ...


@dataclass(frozen=True)
class Options:
    share: Annotated[float, Gt(0), Lt(1), Doc("A share.")] = 0.5
    count: Annotated[int, Ge(1)] = 1
    factor: Annotated[float, Ge(0)] | None = None
    width: Literal["narrow", "wide"] | Annotated[float, Gt(0)] = "wide"
    bound: Annotated[float, AnyNumber()] = -math.inf
    colour: Colour = Colour.RED
    lazy: bool = True
    name: str = "a"
    table: Mapping[str, object] | None = None
    part: Annotated[RBF | Model, Like(Part)] = _DEFAULT

    def __post_init__(self) -> None:
        check_options(self, "section")


@pytest.mark.parametrize(
    ("options", "taken"),
    [
        ({"share": np.float32(0.25)}, 0.25),
        ({"share": np.array(0.25)}, 0.25),
        ({"count": np.int64(3)}, 3),
        ({"count": np.array(3)}, 3),
        ({"factor": 2}, 2.0),
        ({"width": "narrow"}, "narrow"),
        ({"bound": math.inf}, math.inf),
        ({"colour": "blue"}, Colour.BLUE),
        ({"lazy": np.bool_(False)}, False),
        ({"table": {"a": 1}}, {"a": 1}),
    ],
)
def test_numbers_and_names_become_plain_values(options: dict[str, Any], taken: object) -> None:
    (name,) = options
    value = getattr(Options(**options), name)
    assert value == taken
    assert type(value) is type(taken)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"share": 0}, "section.share must be > 0 and < 1, got 0"),
        ({"share": math.nan}, "section.share must be > 0 and < 1, got nan"),
        ({"share": None}, "section.share must be a number > 0 and < 1, got None"),
        ({"share": "0.5"}, "section.share must be a number > 0 and < 1, got '0.5'"),
        ({"share": True}, "section.share must be a number > 0 and < 1, got True"),
        ({"share": np.array([0.5])}, "section.share must be a number > 0 and < 1, got array([0.5])"),
        ({"count": 0}, "section.count must be >= 1, got 0"),
        ({"count": 2.5}, "section.count must be a whole number >= 1, got 2.5"),
        ({"factor": -1}, "section.factor must be a number >= 0 or left out, got -1"),
        ({"factor": math.inf}, "section.factor must be a number >= 0 or left out, got inf"),
        ({"width": "far"}, "section.width must be narrow, wide or a number > 0, got 'far'"),
        ({"bound": "low"}, "section.bound must be a number, got 'low'"),
        ({"colour": "green"}, "section.colour must be one of red, blue, got 'green'"),
        ({"colour": np.array(["red", "blue"])}, "section.colour must be one of red, blue, got array("),
        ({"lazy": 1}, "section.lazy must be True or False, got 1"),
        ({"name": b"a"}, "section.name must be a text, got b'a'"),
        ({"table": [1]}, "section.table must be a mapping or left out, got [1]"),
        ({"part": RBF}, "section.part must be a RBF or a Model or a Part, got <class"),
        ({"part": "rbf"}, "section.part must be a RBF or a Model or a Part, got 'rbf'"),
    ],
)
def test_option_of_another_type_or_out_of_range_is_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match="^" + re.escape(message)):
        Options(**options)


def test_part_may_be_an_object_with_the_right_methods() -> None:
    mine: Any = Mine()
    assert isinstance(Options(part=mine).part, Mine)


def test_number_beyond_any_float_is_not_finite() -> None:
    with pytest.raises(ValueError, match=r"section\.share must be > 0 and < 1, got 1000"):
        Options(share=10**400)


def test_long_value_is_truncated() -> None:
    assert excerpt(np.zeros(10_000)).startswith("array([0., 0., 0., ..., 0., 0., 0.]")  # NumPy 2.2 adds the shape
    assert excerpt("x" * 200) == f"'{'x' * 78}…"


def test_meaning_of_a_field_is_in_its_annotation() -> None:
    assert documentation_of(Options) == {"share": "A share."}


def values_of_no_option() -> Iterator[object]:
    """Values that no option accepts."""
    yield from (
        object(),
        object,
        1j,
        b"x",
        {1},
        [[0.5]],
        [None],
        np.array(["a"]),
        math.nan,
        lambda: 3,
        (n for n in [1]),
    )


@pytest.mark.parametrize("name", LISTED)
def test_option_is_named_with_its_wrong_value(name: str) -> None:
    cls, section = LISTED[name]
    for field in fields(cls):
        for value in values_of_no_option():
            if field.name == "epsilon" and value is not value:  # NaN is checked by the class
                continue
            with pytest.raises(ValueError, match=rf"^{section}\.{field.name} must "):
                cls(**{field.name: value})


# a value out of the range of each option that several strategies have, and the range
OUT_OF_RANGE = {
    "regularization": (0, "> 0"),
    "noise_variance": (-1, ">= 0"),
    "norm_bound": (math.inf, ">= 0 and finite"),
    "noise_scale": (-1, ">= 0"),
    "delta": (1, "> 0 and < 1"),
    "oversampling": (0.5, "a number >= 1 or theory"),
    "ratio_threshold": (math.nan, ">= 1"),
    "resampling": ("rows", "one of pulls, arms, stable"),
    "population": (0, ">= 1"),
    "tournament": (0, ">= 1"),
    "neighbours": (0, ">= 1"),
}


@pytest.mark.parametrize("name", STRATEGIES)
def test_option_has_the_same_range_in_every_strategy(name: str) -> None:
    options = {field.name for field in fields(STRATEGIES[name])}
    for option in options & OUT_OF_RANGE.keys():
        value, range_ = OUT_OF_RANGE[option]
        if name.startswith("compressed_") and option == "noise_variance":
            range_ = "> 0"  # there it is λ, the noise in the model
        if name == "pbt" and option == "population":
            range_ = ">= 2"  # a member copies another one
        with pytest.raises(ValueError) as raised:
            STRATEGIES[name](**{option: value})
        assert str(raised.value) == f"strategy.{option} must be {range_}, got {value!r}"


CHAINING = {"kernel": Linear(), "constants": "chaining"}
WALK = {"first": "centre", "search": "random_walk"}
RELATIVE = {"epsilon": -0.1, "entropy_test": "relative"}


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("bbkb", {"width": "wide"}, "width must be practical, theory or a number > 0, got 'wide'"),
        ("bbkb", {"termination": "never"}, "termination must be one of global, global_then_local, product, "),
        ("bbkb", {"dictionary_limit": 0}, "dictionary_limit must be a whole number >= 1 or left out, got 0"),
        ("async_ts", {"batch_size": None}, "batch_size must be given with mode: batch, got None"),
        ("async_ts", {"scale": 0}, "scale must be > 0, got 0"),
        ("expected_improvement", {"margin": -0.1}, "margin must be >= 0, got -0.1"),
        ("epsilon_greedy", {"exploration": 1.5}, "exploration must be >= 0 and <= 1, got 1.5"),
        ("igp_ucb", {"final_points": 300}, "final_points must be >= initial_points (400), got 300"),
        ("igp_ucb", {"information": "exp"}, "information must be one of kernel, log, sqrt, got 'exp'"),
        ("adaptive_discretization", {"horizon": 1}, "horizon must be >= 2, got 1"),
        ("adaptive_discretization", CHAINING, "kernel must be rbf, matern32 or matern52 with"),
        ("gp_threds", {"low": 2.0}, "high must be > low (2.0), got 1.2"),
        ("gp_threds", {"low": math.nan}, "low must be finite, got nan"),
        ("gp_threds", {"walk_error": 0.5}, "walk_error must be > 0 and < 0.5, got 0.5"),
        ("gp_threds", WALK, "first must be random if search is random_walk, got 'centre'"),
        ("compressed_ei", {"noise_variance": 0.0}, "noise_variance must be > 0, got 0.0"),
        ("compressed_ucb", {"epsilon": math.nan}, "epsilon must be a number below infinity, got nan"),
        ("compressed_mpi", {"epsilon": math.inf}, "epsilon must be a number below infinity, got inf"),
        ("compressed_ucb", RELATIVE, "epsilon must be >= 0 with the relative test, got -0.1"),
        ("compressed_ucb", {"max_skipped": -1}, "max_skipped must be >= 0, got -1"),
    ],
)
def test_option_of_a_strategy_is_rejected_with_its_name(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match="^" + re.escape(f"strategy.{message}")):
        STRATEGIES[name](**options)


@pytest.mark.parametrize("name", LISTED)
def test_option_has_a_text_in_its_annotation(name: str) -> None:
    cls, _ = LISTED[name]
    assert list(documentation_of(cls)) == [field.name for field in fields(cls) if field.name != "name"]


@dataclass(frozen=True)
class FewOptions:
    size: float


def three_arms(set_aside: list[int]) -> SparseState:
    state = initial_state(SparseModel(RBF(), np.eye(3), 1.0), ())
    return state.observe([Observation(arm, None) for arm in set_aside])


def test_broken_rule_is_named_with_the_field_and_its_value() -> None:
    require(FewOptions(3), "size", "even", True)
    with pytest.raises(ValueError, match=r"^strategy\.size must be even, got 3$"):
        require(FewOptions(3), "size", "even", False)


def test_strategy_has_no_choice_if_every_arm_is_set_aside() -> None:
    one_left, exhausted = three_arms(set_aside=[0, 2]), three_arms(set_aside=[0, 1, 2])
    assert refusal(one_left, 1) is None
    assert refusal(exhausted, 1) == Wait("all arms were set aside")
    assert sequential_refusal(exhausted, (1,), 1) == refusal(exhausted, 1)
    with pytest.raises(ValueError, match="limit must be >= 1, got 0"):
        refusal(one_left, 0)


def test_sequential_strategy_waits_for_the_reward_of_the_last_pull() -> None:
    state = three_arms(set_aside=[])
    assert sequential_refusal(state, (), 1) is None
    assert sequential_refusal(state, (2,), 1) == Wait("one pull at a time: the last reward has not arrived")
    with pytest.raises(ValueError, match="limit must be >= 1, got -1"):
        sequential_refusal(state, (), -1)


def width(schedule: Schedule) -> float:
    return WidthOptions(noise_variance=0.04, norm_bound=2.0, delta=0.1).sparse_width(schedule, 3.0, (0.04, 0.09), 5.0)


def test_widths_equal_a_computation_by_hand() -> None:
    assert width("practical") == pytest.approx(0.2 * math.sqrt(3 * 5 + math.log(10)) + 0.3 * 2)
    beta = 2 * 0.2 * math.sqrt(5 + math.log(10)) + (1 + math.sqrt(2)) * 0.3 * 2
    assert width("theory") == pytest.approx(3 * beta)


@pytest.mark.parametrize(("schedule", "c"), [("practical", 1), ("theory", 3)])
def test_information_gain_sums_over_pulls(schedule: Schedule, c: int) -> None:
    gain = information_gain(np.array([0.5, 0.5, 2.0]), schedule)
    assert gain == pytest.approx(2 * math.log(1 + c * 0.5) + math.log(1 + c * 2.0))


def test_width_on_the_bayesian_scale_equals_a_computation_by_hand() -> None:
    found = rkhs_width(0.5, 0.01, math.log(40), 1e-3)
    assert found == pytest.approx(0.5 + 0.01 * math.sqrt(2 * (math.log(40) + 1 + math.log(1000))))


@pytest.mark.parametrize(
    ("kernel", "growth"),
    [(Matern32(0.2), [0.0, 1.0, 7.0]), (Matern52(0.2), [0.0, 1.0, 7.0]), (RBF(), [0, 0, math.log(49)])],
)
def test_information_grows_as_the_kernel_determines(kernel: AnyKernel, growth: list[float]) -> None:
    assert [information_growth(kernel, pulls) for pulls in (0, 1, 49)] == growth
