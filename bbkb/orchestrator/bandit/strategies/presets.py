"""The source of a strategy's options that are not given: the calibrated model, or a paper.

* `paper`: the fields of a strategy have the values with which the authors' experiments ran.
* `theory`: Algorithm 1 with everything that the regret bound asks for (BBKB and BKB, Theorem 2).
  An option that violates one of its conditions is refused.
* `calibrated`, the default: one model for all strategies, so that they differ only in how they
  choose.

A given `kernel`, λ or other option on the scale of the rewards selects `paper`, because nothing is
scaled or fitted then. docs/guarantees.md lists every option beside the value of the papers.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any, Generic, ParamSpec, TypeAlias, TypeVar

from bbkb.orchestrator.bandit.model.model import Model
from bbkb.orchestrator.bandit.options import excerpt
from bbkb.orchestrator.bandit.sparse.strategy import SparseStrategy
from bbkb.orchestrator.bandit.start.warm_start import SpreadStart
from bbkb.orchestrator.bandit.strategies import STRATEGIES
from bbkb.orchestrator.bandit.strategies.async_ts import AsyncTS
from bbkb.orchestrator.bandit.strategy import AnyStrategy, Waiting

P = ParamSpec("P")
T = TypeVar("T")

WIDTH = 2.0  # standard deviations
ATOMS = 300  # the largest dictionary; it limits the duration of a refit
COMPRESSION = 0.1  # ε of the relative test: stores variances above 0.22 of the noise's
COVERAGE = 0.25  # the share of the picks for levels of choices that lack evaluations
VERIFY = 0.25  # the share of the picks that repeat the best candidates if values are noisy
_PUBLISHED = ("kernel", "regularization", "noise_variance", "norm_bound", "noise_scale")  # on the scale of the rewards


class Preset(StrEnum):
    """The source of options that are not given."""

    CALIBRATED = "calibrated"
    PAPER = "paper"
    THEORY = "theory"


_CALIBRATED: Mapping[str, object] = {
    "model": Model(first_fit=None),
    "warm_start": SpreadStart(pulls=None),
    "width": WIDTH,
    "wait": Waiting.NEVER,
    "mode": "async",
    "batch_size": None,
    "refresh_growth": 0.03,
    "resampling": "stable",
    "dictionary_limit": ATOMS,
    "entropy_test": "relative",
    "epsilon": COMPRESSION,
    "coverage": COVERAGE,
    "verify": VERIFY,
    "ratio_threshold": 4.0,
    "termination": "global_then_local",
    "norm_bound": 0.2,  # of scores, for a width by the formula
}


@dataclass(frozen=True)
class _Condition:
    """A condition of a theorem on one option. `rule` continues "must be"; `setting` satisfies it."""

    option: str
    rule: str
    setting: object
    holds: Callable[[Any], bool]


def _is(option: str, setting: str, reason: str) -> _Condition:
    return _Condition(option, f"{setting}, {reason}", setting, lambda value: value == setting)


_ALGORITHM: Sequence[_Condition] = (  # of BBKB and BKB
    _Condition("model", "left out: the kernel and λ are fixed", None, lambda value: value is None),
    _is("resampling", "pulls", "the draw of Algorithm 1, line 13"),
    _Condition("dictionary_limit", "left out: q̄ alone decides the size", None, lambda value: value is None),
    _Condition("verify", "0: every pick has the largest bound", 0.0, lambda value: value == 0.0),
)
_THEOREMS: Mapping[str | None, Sequence[_Condition]] = {
    "bbkb": (
        *_ALGORITHM,
        _is("mode", "batch", "Algorithm 1 learns a batch as a whole"),
        _is("wait", Waiting.DRIFT_BUDGET, "the batch ends by its rule"),
        _is("width", "theory", "β̃ of Theorem 2"),
        _Condition(
            "termination",
            "global, global_then_local or product, which are proven",
            "global",
            lambda value: value != "ratio",
        ),
        _Condition("regularization", ">= 1, as λ in Theorem 2", 1.0, lambda value: value >= 1),
        _is("local_covariance", "embedded", "because Lemma 3 as printed fails for sparse dictionaries"),
        _Condition("coverage", "0: every pick has the largest bound", 0.0, lambda value: value == 0.0),
    ),
    "bkb": (
        *_ALGORITHM,
        _Condition("width", "left out: β̃ of Theorem 2", None, lambda value: value is None),
        _is("acquisition", "ucb", "the acquisition of Theorem 2"),
    ),
}


def with_preset(cls: type[Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return `options` for a strategy of class `cls`, completed by the settings of their `preset`.

    Given options remain unchanged. Raises ValueError if the preset is unknown or contradicts the
    options. The result of `theory` must still be checked by `broken_conditions`.
    """
    explicit = dict(options)
    names = {field.name for field in fields(cls)}
    preset = explicit.pop("preset", None) if "preset" not in names else None
    if preset == Preset.THEORY:
        conditions = _THEOREMS.get(STRATEGIES.name_of(cls))
        if conditions is None:
            raise ValueError(
                f"strategy.preset must be paper or calibrated: theory is of bbkb and bkb, not {cls.__name__}"
            )
        return {**{one.option: one.setting for one in conditions}, "oversampling": "theory", **explicit}
    if "model" not in names:
        if preset not in (None, Preset.PAPER):
            raise ValueError(f"strategy.preset must be paper or left out: {cls.__name__} has no model, got {preset!r}")
        return explicit
    if preset is not None and preset not in list(Preset):
        raise ValueError(f"strategy.preset must be one of {', '.join(Preset)}, got {preset!r}")
    model = explicit.get("model")
    published = [name for name in _PUBLISHED if name in explicit]
    if preset == Preset.CALIBRATED and published and "model" not in explicit:
        raise ValueError(
            f"strategy.preset must be paper if strategy.{published[0]} is given, because calibrated settings "
            "fit the model"
        )
    if preset == Preset.PAPER or (model is None and published):
        return explicit
    settings = dict(_CALIBRATED)
    if issubclass(cls, AsyncTS):
        settings["width"] = 1.0  # for picks by draws from the posterior
    if explicit.get("mode") == "batch":
        settings["wait"] = Waiting.DRIFT_BUDGET
        del settings["batch_size"]
    if isinstance(model, Mapping):  # of a file; the start is short, and so is the first fit
        explicit["model"] = {"first_fit": None, **model}
    return {**{name: value for name, value in settings.items() if name in names}, **explicit}


def broken_conditions(strategy: object, evaluations: int | None = None) -> list[tuple[str, str, str]]:
    """Return the conditions of the strategy's theorem that its options violate, each as option, rule
    and value.

    Args:
        strategy: the strategy; if no theorem applies to it, the result is empty.
        evaluations: the budget T; None if it is unknown. Then q̄ must grow with t.
    """
    if not isinstance(strategy, SparseStrategy):
        return []
    broken = []
    for condition in _THEOREMS.get(STRATEGIES.name_of(type(strategy)), ()):
        value = getattr(strategy, condition.option)
        if not condition.holds(value):
            broken.append((condition.option, f"must be {condition.rule}", excerpt(value)))
    if not isinstance(strategy.oversampling, str):
        least = math.inf if evaluations is None else strategy.proven_oversampling(evaluations)
        if strategy.oversampling < least:
            bound = "" if evaluations is None else f" or >= {least:.6g}, its value after {evaluations} pulls"
            rule = f"must be theory, q̄ = 72 C̃ log(4t/δ) of Theorem 2{bound}"
            broken.append(("oversampling", rule, excerpt(strategy.oversampling)))
    return broken


class Calibrated(Generic[P, T]):
    """Creates a strategy from options in Python with calibrated settings, as a campaign file does.

    `BBKB(coverage=0.1)` has the calibrated model; `BBKB.paper(ratio_threshold=3)` has the settings
    of the authors' experiments, and `BBKB.theory()` those of their theorem. The options are the
    fields of the strategy's class.
    """

    def __init__(self, cls: Callable[P, T]) -> None:
        self._cls = cls
        self.__doc__ = cls.__doc__

    def __mro_entries__(self, bases: tuple[object, ...]) -> tuple[type, ...]:
        """Raise TypeError, because a subclass would not be calibrated."""
        raise TypeError(
            "a strategy of bbkb.strategies is not a class: it creates strategies with calibrated "
            "settings. Derive your strategy from ModelFree of bbkb.strategy"
        )

    def __call__(self, *args: P.args, **options: P.kwargs) -> T:
        """Return the strategy with these options. Raises ValueError if an option is not allowed."""
        return self._make(args, options)

    def paper(self, *args: P.args, **options: P.kwargs) -> T:
        """Return the algorithm as in the authors' experiments, with these options."""
        return self._cls(*args, **options)

    def theory(self, *args: P.args, **options: P.kwargs) -> T:
        """Return the algorithm with the settings of its regret bound, and with these options.

        Raises ValueError if the strategy has no such bound, or if an option violates a condition of
        it. The budget is unknown here, so q̄ must be `theory`, which grows with t.
        """
        strategy = self._make(args, {**options, "preset": Preset.THEORY})
        broken = [f"strategy.{option} {rule}, got {value}" for option, rule, value in broken_conditions(strategy)]
        if broken:
            raise ValueError("\n".join(broken))
        return strategy

    def _make(self, args: tuple[Any, ...], options: Mapping[str, Any]) -> T:
        make: Callable[..., T] = self._cls
        return make(*args, **with_preset(make, options))  # type: ignore[arg-type]  # it is a class


# a strategy in Python: a name, `module:Name`, a class of one's own, or an object of any strategy
StrategyChoice: TypeAlias = str | type[Any] | AnyStrategy | Calibrated[..., Any]
