"""Where a strategy's options come from unless they are given: the calibrated model, or the paper.

The fields of a strategy have the values of the algorithm that was published. A campaign file or an
`Optimizer` that names a strategy and nothing else gets the calibrated settings instead: one model
for all strategies, so that they differ only in how they choose. `preset: paper`, or a `kernel` or λ
of one's own, which describe rewards as they come, leaves the published ones.
"""

from collections.abc import Mapping
from dataclasses import fields
from enum import StrEnum
from typing import Any

from orchestrator.bandit.model.model import Model
from orchestrator.bandit.start.warm_start import SpreadStart
from orchestrator.bandit.strategies.async_ts import AsyncTS
from orchestrator.bandit.strategy import Waiting

WIDTH = 2.0  # standard deviations
ATOMS = 300  # of a dictionary, so that a refit costs a bounded time
COMPRESSION = 0.1  # ε of the relative entropy test: a pair is stored while its variance is above 0.22 of the noise's
COVERAGE = 0.25  # share of the picks for levels of choices that lack evaluations
VERIFY = 0.25  # share of the picks that repeat the best candidates where values are noisy
_PUBLISHED = ("kernel", "regularization", "noise_variance", "norm_bound", "noise_scale")  # on the scale of the rewards


class Preset(StrEnum):
    """The source of the options that are not given."""

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


# What was calibrated first. A resolved file has all of its strategy's options, so one of an older
# run has all of these.
_FIRST = {name: _CALIBRATED[name] for name in _CALIBRATED if name not in ("coverage", "verify")}


def with_preset(cls: type[Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return `options` of a strategy of class `cls`, without `preset`, and with the settings that
    it stands for.

    Options that are given stay as they are. Raises ValueError when the preset is unknown, or
    contradicts them.
    """
    explicit = dict(options)
    names = {field.name for field in fields(cls)}
    named = explicit.pop("preset", None) if "model" in names else None
    published = [name for name in _PUBLISHED if name in explicit]
    if named is not None and named not in list(Preset):
        raise ValueError(f"strategy.preset must be one of {', '.join(Preset)}, got {named!r}")
    if named == Preset.CALIBRATED and published and "model" not in explicit:
        raise ValueError(
            f"strategy.preset must be paper beside strategy.{published[0]}: calibrated settings fit the model instead"
        )
    if "model" not in names or named == Preset.PAPER or (explicit.get("model") is None and published):
        return explicit
    if explicit.keys() >= _FIRST.keys() & names:
        return explicit  # a resolved file: an option that it lacks is newer than the run, and off
    model = explicit.get("model")
    if isinstance(model, Mapping) and "first_fit" not in model:
        explicit["model"] = {**model, "first_fit": None}  # as early as the calibrated start is short
    calibrated = {name: value for name, value in _CALIBRATED.items() if name in names}
    if issubclass(cls, AsyncTS):
        calibrated["width"] = 1.0  # it picks by draws from the posterior, not by upper bounds
    if explicit.get("mode") == "batch":
        if "wait" in names:
            calibrated["wait"] = Waiting.DRIFT_BUDGET  # what ends a batch
        calibrated.pop("batch_size", None)
    return {**calibrated, **explicit}
