"""Campaign files of older versions, in the form of this version.

No other module of the settings knows an older version; `store.migrations` knows the older logs.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from orchestrator.bandit.model.model import Model
from orchestrator.bandit.start.warm_start import SpreadStart
from orchestrator.bandit.strategies.bbkb import BBKB
from orchestrator.bandit.strategies.presets import COVERAGE, VERIFY
from orchestrator.settings.file import Plain, Tree
from orchestrator.settings.mistakes import Refusal, excerpt, failure

_RETIRED = {"fillers": "picks for idle workers raised the regret and kept fewer workers busy"}
# options that changed no decision → the strategy that had them
_WITHOUT_EFFECT = {"lazy": BBKB}
# The calibrated options of the first version. A resolved file has all options of its strategy, so
# the file of an older run has all of these.
_FIRST = frozenset((
    "model", "warm_start", "width", "wait", "mode", "batch_size", "refresh_growth", "resampling",
    "dictionary_limit", "entropy_test", "epsilon",
))  # fmt: skip
# the calibrated options that came later, with their current values; they are off in older runs
_LATER = {"coverage": COVERAGE, "verify": VERIFY}


def current_options(cls: type, options: Tree) -> Plain:
    """Return the options of a strategy of class `cls` without retired ones. A resolved file of an
    older run gets the later options, which are off.

    Raises ValidationError if a retired option is enabled.
    """
    for name, reason in _RETIRED.items():
        if options.get(name):
            rule = f"is not an option any longer: {reason}; remove it"
            raise failure([Refusal((name,), rule, excerpt(options[name]))])
    defaults = {field.name: field.default for field in dataclasses.fields(cls)}
    without_effect = (name for name, strategy in _WITHOUT_EFFECT.items() if issubclass(cls, strategy))
    retired = {*_RETIRED, *without_effect} - defaults.keys()
    current = {name: value for name, value in options.items() if name not in retired}
    if "model" not in defaults or not current.keys() >= _FIRST & defaults.keys():
        return current
    if isinstance(current["model"], Mapping):
        current["model"] = {"first_fit": Model().first_fit, **current["model"]}
    return {**{name: defaults[name] for name in _LATER if name in defaults}, **current}


def with_begun_options(old: object, before: Any, strategy: Any) -> Any:
    """Return the strategy of a resume with the options with which an older version began the run.

    Args:
        old: the recorded options. An older version did not record those that came later.
        before: the strategy built from `old`.
        strategy: the strategy of the resume. Its options that differ from the defaults are kept.
    """
    if not isinstance(old, Mapping) or type(before) is not type(strategy):
        return strategy
    changed = {
        name: getattr(before, name)
        for name, default in _LATER.items()
        if name not in old and getattr(strategy, name, None) == default
    }
    model = old.get("model")
    if isinstance(model, Mapping) and "first_fit" not in model and isinstance(strategy.model, Model):
        if strategy.model.first_fit is None:
            changed["model"] = dataclasses.replace(strategy.model, first_fit=before.model.first_fit)
        start = getattr(strategy, "warm_start", None)
        if isinstance(start, SpreadStart) and start.pulls is None:
            changed["warm_start"] = before.warm_start
    return dataclasses.replace(strategy, **changed) if changed else strategy
