"""Campaign files of older versions, in the form of this version.

No other module of the settings knows an older version; `store.migrations` knows the older logs.
"""

import dataclasses
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

from orchestrator.bandit.model.model import Model
from orchestrator.bandit.start.warm_start import SpreadStart
from orchestrator.bandit.strategies.bbkb import BBKB
from orchestrator.bandit.strategies.presets import COVERAGE, VERIFY
from orchestrator.settings.file import Document, Keys, Plain, Tree, dotted_key
from orchestrator.settings.known_results import TABLES
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

_START: Keys = ("strategy", "warm_start")
# sections that every file of a run has, and hardly a file of a user
_WRITTEN = frozenset({"seed", "candidates", "computing", "log", "data", "runs"})


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
    start = current.get("warm_start")
    if isinstance(start, Mapping) and start.get("name") == "data":
        current["warm_start"] = {"name": "data"}  # saved optimizers have a path beside it
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


def with_known_results(document: Document) -> Document:
    """Return the document with the sections of older versions for known results as entries of
    `known_results`. A file that no program wrote causes a warning with the new spelling."""
    entries = list(_older_sources(document.tree))
    listed = document.tree.get("known_results") or []
    tree = {key: value for key, value in document.tree.items() if key not in ("existing_data", "earlier")}
    if not entries or not isinstance(listed, list | tuple):
        return dataclasses.replace(document, tree=tree)
    places = dict(document.places)
    for number, (keys, entry, names) in enumerate(entries, start=len(listed)):
        if not tree.keys() >= _WRITTEN:
            place = document.place(keys)
            message = f"{place}: {dotted_key(keys)} is an older spelling: write known_results: [{excerpt(entry)}]"
            warnings.warn(f"{message}; the older one is removed in version 0.4", FutureWarning, stacklevel=4)
        new: Keys = ("known_results", number)
        places[new] = document.place(keys)
        for old, place in document.places.items():
            if old[: len(keys)] == keys and len(old) > len(keys):
                below = old[len(keys) :]
                places[(*new, *names.get(below[0], (below[0],)), *below[1:])] = place
    tree["known_results"] = [*listed, *(entry for _, entry, _ in entries)]
    strategy = tree.get("strategy")
    if isinstance(strategy, Mapping) and any(keys == _START for keys, _, _ in entries):
        tree["strategy"] = {**strategy, "warm_start": {"name": "data"}}
    return dataclasses.replace(document, tree=tree, places=places)


def _older_sources(tree: Tree) -> Iterator[tuple[Keys, object, Mapping[str | int, Keys]]]:
    """Yield for each older section its keys, its entry of `known_results`, and the new keys of its
    own keys that have other names."""
    strategy = tree.get("strategy")
    start = strategy.get("warm_start") if isinstance(strategy, Mapping) else None
    if isinstance(start, Mapping) and start.get("name") == "data" and len(start) > 1:
        path = start.get("path")
        store = path if start.get("campaign") is not None or "://" in str(path) else None
        if store is not None:
            yield _START, {"run": start.get("campaign"), "store": store}, {"path": ("store",), "campaign": ("run",)}
        elif str(path).endswith(TABLES):
            entry = {"table": path, "reward": start.get("reward") or "reward"}
            yield _START, entry, {"path": ("table",)}
        else:
            yield _START, {"run": path}, {"path": ("run",)}
    if tree.get("existing_data") is not None:
        yield ("existing_data",), tree["existing_data"], {}
    runs = tree.get("earlier")
    if isinstance(runs, Mapping):  # as a run's file has them
        yield ("earlier",), {"best_of": runs.get("runs"), "first": runs.get("first")}, {"runs": ("best_of",)}
    elif runs is not None:
        numbers = range(len(runs)) if isinstance(runs, list | tuple) else ()
        yield ("earlier",), {"best_of": runs}, {number: ("best_of", number) for number in numbers}
