"""Converts Ray Tune's search spaces to spaces of this project.

Parameters are called p0, p1, … in the order of the configuration, and a choice is represented by
its index, because Tune allows any keys, including nested ones, and any objects.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ray.tune.search.sample import Categorical, Domain, Float, Integer, LogUniform, Quantized, Uniform

from bbkb.objectives.parameters import Choice, Constant, Parameter, Range, Scalar

Config = dict[str, Any]  # Tune's configuration: keys and values of any type

_GRID = "grid_search"


@dataclass(frozen=True)
class TuneSpace:
    """The domains of a configuration by path, in order. Fixed values remain with Tune."""

    domains: Mapping[tuple[str, ...], Domain]

    @staticmethod
    def of(config: Mapping[str, object]) -> "TuneSpace":
        """Return the domains of `config`. Raises ValueError, with path and remedy, for grid_search
        and for a domain in a list."""
        return TuneSpace(dict(_domains(config, ())))

    @property
    def parameters(self) -> dict[str, Parameter]:
        """The project's parameters. Raises ValueError with path and remedy for other sampling."""
        return {f"p{place}": _parameter(path, domain) for place, (path, domain) in enumerate(self.domains.items())}

    def config(self, configuration: Mapping[str, Scalar]) -> Config:
        """Convert a configuration of this project to Tune's nested form."""
        config: Config = {}
        for place, (path, domain) in enumerate(self.domains.items()):
            inner = config
            for key in path[:-1]:
                inner = inner.setdefault(key, {})
            value: Any = configuration[f"p{place}"]
            inner[path[-1]] = domain.categories[value] if isinstance(domain, Categorical) else value
        return config

    def configuration(self, config: Mapping[str, object]) -> dict[str, Scalar]:
        """Convert Tune's configuration. Raises KeyError (parameter) or ValueError (choice)."""
        values: dict[str, Scalar] = {}
        for place, (path, domain) in enumerate(self.domains.items()):
            value: Any = config
            for key in path:
                value = value[key]
            values[f"p{place}"] = domain.categories.index(value) if isinstance(domain, Categorical) else value
        return values


def _domains(config: Mapping[str, object], above: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Domain]]:
    for key, value in config.items():
        path = (*above, key)
        if isinstance(value, Domain):
            yield path, value
        elif isinstance(value, Mapping) and _GRID in value:
            raise ValueError(f"{'/'.join(path)} must not be tune.grid_search: values are proposed; write tune.choice")
        elif isinstance(value, list | tuple) and any(isinstance(item, Domain | Mapping) for item in value):
            if dict(_domains({str(place): item for place, item in enumerate(value)}, path)):
                raise ValueError(f"{'/'.join(path)} must not be a list with tune's domains; write a dictionary")
        elif isinstance(value, Mapping):
            yield from _domains(value, path)


def _parameter(path: tuple[str, ...], domain: Domain) -> Parameter:
    sampler: Any = domain.get_sampler()
    step = sampler.q if isinstance(sampler, Quantized) else None
    unrounded = sampler.sampler if isinstance(sampler, Quantized) else sampler
    is_log = isinstance(unrounded, LogUniform)
    match domain:
        case Categorical(categories=levels):
            return Choice(tuple(range(len(levels)))) if len(levels) > 1 else Constant(0)
        case Float(lower=low, upper=high) if isinstance(unrounded, Uniform | LogUniform):
            return Range(low, high, log=is_log, step=step)
        case Integer(lower=low, upper=high) if isinstance(unrounded, Uniform | LogUniform):
            # excludes the end unless quantized
            last = high if step is not None and step > 1 else high - 1
            return Range(low, last, log=is_log, integer=True, step=step) if last > low else Constant(low)
    kinds = "uniform, loguniform, randint, lograndint, a quantized one of these, or choice"
    raise ValueError(
        f"{'/'.join(path)} must be tune.{kinds}, got {type(unrounded).__name__}; write a choice of its values"
    )
