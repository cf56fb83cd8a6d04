"""The source of a strategy's options that are not given: the calibrated model, or the paper.

The fields of a strategy have the values of the published algorithm. A campaign file or an
`Optimizer` that only names a strategy uses the calibrated settings instead: one model for all
strategies, so that they differ only in how they choose. `preset: paper`, or a given `kernel` or λ
(for unscaled rewards), selects the published options.
"""

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import fields
from enum import StrEnum
from typing import Any, Generic, ParamSpec, TypeVar

from bbkb.orchestrator.bandit.model.model import Model
from bbkb.orchestrator.bandit.start.warm_start import SpreadStart
from bbkb.orchestrator.bandit.strategies.async_ts import AsyncTS
from bbkb.orchestrator.bandit.strategy import Waiting

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
}

_LEFT_OUT = object()  # the option keeps the default of its class
_DRAWS: Mapping[str, object] = {"width": 1.0}  # for picks by draws from the posterior
_BATCHES: Mapping[str, object] = {"wait": Waiting.DRIFT_BUDGET, "batch_size": _LEFT_OUT}


def with_preset(cls: type[Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return `options` for a strategy of class `cls`, completed by the settings of their `preset`.

    Given options remain unchanged. Raises ValueError if the preset is unknown or contradicts the
    options.
    """
    explicit = dict(options)
    names = {field.name for field in fields(cls)}
    if "model" not in names:
        return explicit
    preset = explicit.pop("preset", None)
    published = [name for name in _PUBLISHED if name in explicit]
    _check_preset(preset, published if "model" not in explicit else [])
    if preset == Preset.PAPER or (explicit.get("model") is None and published):
        return explicit
    return {**_calibrated(cls, names, explicit.get("mode")), **explicit, **_early_fit(explicit.get("model"))}


def _check_preset(preset: object, published: Sequence[str]) -> None:
    """Raise ValueError if a preset contradicts options on the scale of the rewards."""
    if preset is not None and preset not in list(Preset):
        raise ValueError(f"strategy.preset must be one of {', '.join(Preset)}, got {preset!r}")
    if preset == Preset.CALIBRATED and published:
        raise ValueError(
            f"strategy.preset must be paper if strategy.{published[0]} is given, because calibrated settings "
            "fit the model"
        )


def _calibrated(cls: type[Any], names: Set[str], mode: object) -> dict[str, object]:
    """Return the calibrated settings of a strategy with the options `names`."""
    settings = {
        **_CALIBRATED,
        **(_DRAWS if issubclass(cls, AsyncTS) else {}),
        **(_BATCHES if mode == "batch" else {}),
    }
    return {name: value for name, value in settings.items() if name in names and value is not _LEFT_OUT}


def _early_fit(model: object) -> dict[str, object]:
    """Return a file's model with an early fit, if the calibrated start is short."""
    if not isinstance(model, Mapping):
        return {}
    return {"model": {"first_fit": None, **model}}


class Calibrated(Generic[P, T]):
    """Creates a strategy from options in Python with calibrated settings, as a campaign file does.

    `BBKB(coverage=0.1)` has the calibrated model; `BBKB.paper(ratio_threshold=2)` is the published
    algorithm. The options are the fields of the strategy's class.
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
        make: Callable[..., T] = self._cls
        return make(*args, **with_preset(make, options))  # type: ignore[arg-type]  # it is a class

    def paper(self, *args: P.args, **options: P.kwargs) -> T:
        """Return the published algorithm with these options."""
        return self._cls(*args, **options)
