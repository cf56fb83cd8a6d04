"""Spellings of version 0.2, which still work but cause a warning."""

import functools
import inspect
from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import Any, ParamSpec

from objectives.keywords import arguments_of, did_you_mean, refuse_unknown
from orchestrator.ask_tell.strategy import named_strategy
from orchestrator.bandit.strategies import STRATEGIES
from orchestrator.campaign.trial_result import TrialResult
from orchestrator.errors import warn_of_older

P = ParamSpec("P")
_ATTRIBUTES = "a trial has attributes: write parameters and value"
_RENAMED = {"expect": "mark_pending", "reached": "last_step"}
_REFUSED = {
    "direction": "direction must be left out, because rewards are maximized; negate values to minimize",
    "existing": "existing must be left out with a space; pass earlier results to tell instead",
    "limit": "limit must be written candidate_limit; `limit` is an argument of ask",
}


class Renamed:
    """A class with renamed methods."""

    def __getattr__(self, name: str) -> Any:
        """Return the method that was called `name` in version 0.2."""
        new_name = _RENAMED.get(name, "")
        if not hasattr(type(self), new_name):
            return super().__getattribute__(name)  # raises the AttributeError again
        warn_of_older(f"{name} is called {new_name}: write {new_name}(…)")
        return getattr(self, new_name)


def accepts_options(initialize: Callable[P, None]) -> Callable[P, None]:
    """Return a constructor that also takes the strategy's options as keyword arguments."""
    signature = inspect.signature(initialize)
    arguments = arguments_of(initialize)
    title = initialize.__qualname__.removesuffix(".__init__")

    @functools.wraps(initialize)
    def with_options(*args: P.args, **kwargs: P.kwargs) -> None:
        options = {name: value for name, value in kwargs.items() if name not in signature.parameters}
        known: Any = {name: value for name, value in kwargs.items() if name in signature.parameters}
        if not options:
            return initialize(*args, **known)
        for name in options.keys() & _REFUSED.keys():
            raise ValueError(_REFUSED[name])
        bound = signature.bind_partial(*args, **known)
        choice = bound.arguments.get("strategy", "bbkb")
        if isinstance(choice, str) and choice in STRATEGIES:
            own = {"preset", *(field.name for field in fields(STRATEGIES[choice]))}
            wrong = [name for name in options if name not in own and did_you_mean(name, arguments)]
            refuse_unknown(title, wrong, arguments)
        has_existing = bound.arguments.get("existing") is not None
        bound.arguments["strategy"] = named_strategy(choice, options, has_existing)
        maker = "BBKB.paper" if options.get("preset") == "paper" else "BBKB"
        shown = ", ".join(f"{name}=…" for name in options if name != "preset")
        warn_of_older(f"options belong to the strategy: write strategy={maker}({shown}), from bbkb.strategies")
        return initialize(*bound.args, **bound.kwargs)

    return with_options


class SearchResult(TrialResult):
    """A trial of ask and tell. It also works as the pair or mapping of version 0.2."""

    __slots__ = ()

    def __call__(self) -> tuple[Any, float | None]:
        """Return the pair that `best()` returned in version 0.2."""
        warn_of_older("best is a property: write best.parameters and best.value")
        return self._pair[0], self.value

    def __getitem__(self, key: str | int) -> Any:
        """Return an item of the mapping or pair that version 0.2 returned."""
        warn_of_older(_ATTRIBUTES)
        if isinstance(key, int):
            return self._pair[key]
        return dict(zip(("configuration", "value", "candidate", "reward"), self._pair * 2, strict=True))[key]

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the pair that version 0.2 returned."""
        warn_of_older(_ATTRIBUTES)
        return iter(self._pair)

    @property
    def _pair(self) -> tuple[Any, Any]:
        is_row = list(self.parameters) == ["candidate"] and not self.metrics
        value: Any = dict(self.metrics) if self.metrics else self.value
        return self.parameters["candidate"] if is_row else dict(self.parameters), value


class Front(tuple[TrialResult, ...]):
    """The trials of a front, which can still be called as in version 0.2."""

    __slots__ = ()

    def __call__(self) -> list[tuple[dict[str, Any], dict[str, float]]]:
        """Return pairs of a configuration and its values."""
        warn_of_older("front is a property: write parameters and metrics of its trials")
        return [(dict(trial.parameters), dict(trial.metrics)) for trial in self]
