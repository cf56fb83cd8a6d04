"""Campaign files of older versions, converted to the form of this version.

No other module of the settings knows older versions; `store.migrations` knows older logs.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from orchestrator.bandit.model.model import Model
from orchestrator.bandit.start.warm_start import SpreadStart
from orchestrator.bandit.strategies.bbkb import BBKB
from orchestrator.bandit.strategies.presets import COVERAGE, VERIFY
from orchestrator.errors import warn_of_older
from orchestrator.settings.file import Document, Keys, Plain, Tree, dotted_key
from orchestrator.settings.known_results import TABLES
from orchestrator.settings.mistakes import Refusal, excerpt, failure

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

_START: Keys = ("strategy", "warm_start")
# sections that every file of a run has, but hardly any file of a user
_WRITTEN = frozenset({"seed", "candidates", "computing", "log", "data", "runs"})


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
    if isinstance(start, Mapping) and start.get("name") == "data":
        current["warm_start"] = {"name": "data"}  # saved optimizers also have a path
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


@dataclasses.dataclass(frozen=True)
class _Moved:
    """A section of older versions that is now a source of `known_results`."""

    keys: Keys  # the section
    source: object
    names: Mapping[str | int, Keys]  # renamed keys → their new names

    def places(self, document: Document, new: Keys) -> dict[Keys, str]:
        """Return the positions of the source at `new`, which are those of the older keys."""
        places = {new: document.place(self.keys)}
        depth = len(self.keys)
        for keys, place in document.places.items():
            if keys[:depth] == self.keys and len(keys) > depth:
                name = keys[depth]
                places[(*new, *self.names.get(name, (name,)), *keys[depth + 1 :])] = place
        return places

    def warn(self, document: Document) -> None:
        """Warn about the older spelling, and give the new one."""
        remedy = f"write known_results: [{excerpt(self.source)}]"
        message = f"{dotted_key(self.keys)} is an older spelling: {remedy}"
        warn_of_older(message, document.place(self.keys))


def with_known_results(document: Document) -> Document:
    """Return the document, with older sections for known results converted to sources of
    `known_results`. Warns unless a program wrote the document."""
    tree = {key: value for key, value in document.tree.items() if key not in ("existing_data", "earlier")}
    moved = [*_warm_start(document.tree), *_sections(document.tree)]
    listed = tree.get("known_results") or []
    if not moved or not isinstance(listed, list | tuple):
        return dataclasses.replace(document, tree=tree)
    places = dict(document.places)
    for number, each in enumerate(moved, start=len(listed)):
        places |= each.places(document, ("known_results", number))
        if not tree.keys() >= _WRITTEN:
            each.warn(document)
        if each.keys == _START:
            tree["strategy"] = {**tree["strategy"], "warm_start": {"name": "data"}}
    tree["known_results"] = [*listed, *(each.source for each in moved)]
    return dataclasses.replace(document, tree=tree, places=places)


def _warm_start(tree: Tree) -> Iterator[_Moved]:
    strategy = tree.get("strategy")
    start = strategy.get("warm_start") if isinstance(strategy, Mapping) else None
    if not isinstance(start, Mapping) or start.get("name") != "data" or len(start) == 1:
        return
    path = start.get("path")
    campaign = start.get("campaign")
    if campaign is not None or "://" in str(path):
        yield _Moved(_START, {"run": campaign, "store": path}, {"path": ("store",), "campaign": ("run",)})
    elif str(path).endswith(TABLES):
        yield _Moved(_START, {"table": path, "reward": start.get("reward") or "reward"}, {"path": ("table",)})
    else:
        yield _Moved(_START, {"run": path}, {"path": ("run",)})


def _sections(tree: Tree) -> Iterator[_Moved]:
    if tree.get("existing_data") is not None:
        yield _Moved(("existing_data",), tree["existing_data"], {})
    runs = tree.get("earlier")
    if isinstance(runs, Mapping):  # if the file belongs to a run
        source = {"best_of": runs.get("runs"), "first": runs.get("first")}
        yield _Moved(("earlier",), source, {"runs": ("best_of",)})
    elif runs is not None:
        numbers = range(len(runs)) if isinstance(runs, list | tuple) else ()
        yield _Moved(("earlier",), {"best_of": runs}, {number: ("best_of", number) for number in numbers})
