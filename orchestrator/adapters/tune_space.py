"""Search spaces of Ray Tune as spaces of ours."""

from collections.abc import Mapping
from typing import Any

from ray.tune.search.sample import Categorical, Domain, Float, Integer, LogUniform, Quantized, Uniform

from objectives.conditions import Scalar
from objectives.parameters import Choice, Constant, Parameter, Range, Space

_GRID = "grid_search"


def space_of(config: Mapping[str, Any]) -> dict[tuple[str, ...], Parameter]:
    """The parameters of `config` by their path, in order; what is fixed stays with Tune and is left out.

    Raises ValueError, naming path and remedy, when one is grid_search or sampled by a function or another scale.
    """
    found: dict[tuple[str, ...], Parameter] = {}
    for key, value in config.items():
        if isinstance(value, Domain):
            found[key,] = _parameter(key, value)
        elif isinstance(value, Mapping) and _GRID in value:
            raise ValueError(f"{key} must not be tune.grid_search: this search proposes values; write tune.choice")
        elif isinstance(value, Mapping):
            for path, parameter in space_of(value).items():
                found[key, *path] = parameter
    return found


def flat(space: Mapping[tuple[str, ...], Parameter]) -> Space:
    """The space with paths as names."""
    return {"/".join(path): parameter for path, parameter in space.items()}


def nested(space: Mapping[tuple[str, ...], Parameter], parameters: Mapping[str, Scalar]) -> dict[str, Any]:
    """A configuration of Tune with these parameters of the flat space."""
    config: dict[str, Any] = {}
    for path in space:
        inner = config
        for key in path[:-1]:
            inner = inner.setdefault(key, {})
        inner[path[-1]] = parameters["/".join(path)]
    return config


def values_of(space: Mapping[tuple[str, ...], Parameter], config: Mapping[str, Any]) -> dict[str, Any]:
    """The flat space's parameters of a configuration. Raises KeyError when one is not in it."""
    found: dict[str, Any] = {}
    for path in space:
        inner: Any = config
        for key in path:
            inner = inner[key]
        found["/".join(path)] = inner
    return found


def _parameter(name: str, domain: Domain) -> Parameter:
    sampler: Any = domain.get_sampler()
    step = sampler.q if isinstance(sampler, Quantized) else None
    drawn = sampler.sampler if isinstance(sampler, Quantized) else sampler
    is_log = isinstance(drawn, LogUniform)
    match domain:
        case Categorical(categories=levels):
            return Choice(tuple(levels)) if len(levels) > 1 else Constant(levels[0])
        case Float(lower=low, upper=high) if isinstance(drawn, Uniform | LogUniform):
            return Range(low, high, log=is_log, step=step)
        case Integer(lower=low, upper=high) if isinstance(drawn, Uniform | LogUniform):
            last = high if step is not None and step > 1 else high - 1  # Tune leaves out the end, unless quantised
            return Range(low, last, log=is_log, integer=True, step=step) if last > low else Constant(low)
    kinds = "uniform, loguniform, randint, lograndint, a quantised one of these, or choice"
    raise ValueError(f"{name} must be tune.{kinds}, got {domain.domain_str}; write a choice of its values")
