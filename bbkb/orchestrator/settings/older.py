"""Campaign files of older runs, converted to the form of this version.

No other module of the settings knows older versions; `store.migrations` knows older logs.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from bbkb.orchestrator.bandit.model.model import Model
from bbkb.orchestrator.bandit.start.warm_start import SpreadStart
from bbkb.orchestrator.bandit.strategies.bbkb import BBKB
from bbkb.orchestrator.bandit.strategies.presets import COVERAGE, VERIFY
from bbkb.orchestrator.settings.file import Document, Plain, Tree
from bbkb.orchestrator.settings.known_results import TABLES
from bbkb.orchestrator.settings.mistakes import Refusal, excerpt, failure

_RETIRED = {"fillers": "picks for idle workers raised the regret and kept fewer workers busy"}
# options that never changed a decision → the strategy that had them
_WITHOUT_EFFECT = {"lazy": BBKB}
# The calibrated options of the first version. A resolved file contains all options of its strategy,
# so the file of an older run contains all of these.
_FIRST = frozenset((
    "model", "warm_start", "width", "wait", "mode", "batch_size", "refresh_growth", "resampling",
    "dictionary_limit", "entropy_test", "epsilon",
))  # fmt: skip
# the calibrated options that were added later, with their current values; off in older runs
_LATER = {"coverage": COVERAGE, "verify": VERIFY}

# sections that every file of a run has, but hardly any file of a user
_WRITTEN = frozenset({"seed", "candidates", "computing", "store", "data", "runs"})


def current_options(cls: type, options: Tree) -> Plain:
    """Return the options of a strategy of class `cls` without retired ones. A resolved file of an
    older run gets the options that were added later, switched off.

    Raises ValidationError if a retired option is enabled.
    """
    for name, reason in _RETIRED.items():
        if options.get(name):
            rule = f"is no longer an option: {reason}; remove it"
            raise failure([Refusal((name,), rule, excerpt(options[name]))])
    defaults = {field.name: field.default for field in dataclasses.fields(cls)}
    without_effect = (name for name, strategy in _WITHOUT_EFFECT.items() if issubclass(cls, strategy))
    retired = {*_RETIRED, *without_effect} - defaults.keys()
    current = {name: value for name, value in options.items() if name not in retired}
    start = current.get("warm_start")
    if isinstance(start, Mapping) and start.get("path") == "existing results":  # of a saved optimizer
        current["warm_start"] = {"name": "data"}
    if "model" not in defaults or not current.keys() >= _FIRST & defaults.keys():
        return current
    if isinstance(current["model"], Mapping):
        current["model"] = {"first_fit": Model().first_fit, **current["model"]}
    return {**{name: defaults[name] for name in _LATER if name in defaults}, **current}


def with_begun_options(old: object, before: Any, strategy: Any) -> Any:
    """Return the strategy of a resume with the options of the older version that began the run.

    Args:
        old: the recorded options. An older version did not record options that were added later.
        before: the strategy built from `old`.
        strategy: the strategy of the resume. Options that differ from the defaults are kept.
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


def with_known_results(document: Document) -> Document:
    """Return the document of an older run with its sections for known results as sources of
    `known_results`. Other documents are returned unchanged."""
    if not document.tree.keys() >= _WRITTEN:
        return document
    tree = dict(document.tree)
    existing = tree.pop("existing_data", None)
    runs = tree.pop("earlier", None)
    moved = [] if existing is None else [existing]
    if isinstance(runs, Mapping):
        moved.append({"best_of": runs.get("runs"), "first": runs.get("first")})
    strategy: Any = tree.get("strategy")
    start = strategy.get("warm_start") if isinstance(strategy, Mapping) else None
    if isinstance(start, Mapping) and start.get("path") is not None:
        moved.insert(0, _source(start))
        tree["strategy"] = {**strategy, "warm_start": {"name": "data"}}
    if moved:
        tree["known_results"] = moved
    return dataclasses.replace(document, tree=tree)


def _source(start: Tree) -> Plain:
    """Return the source for a warm start that has the path of a table, a run or a store."""
    path = str(start["path"])
    campaign = start.get("campaign")
    if campaign is not None or "://" in path:
        return {"run": campaign, "store": path}
    if path.endswith(TABLES):
        return {"table": path, "reward": start.get("reward") or "reward"}
    return {"run": path}
