"""The methods by name. The library of a peer is imported when it is used, so each is optional."""

from collections.abc import Mapping
from importlib.util import find_spec

from benchmarks.peers.methods.ours import Options
from benchmarks.peers.problems import Group, Problem
from benchmarks.peers.search import Method
from objectives.keywords import did_you_mean
from orchestrator.bandit.strategies import STRATEGIES
from orchestrator.errors import UserError

_LIBRARIES: Mapping[str, tuple[str, ...]] = {
    "tpe": ("optuna",),
    "cma-es": ("optuna", "cmaes"),
    "gp-sampler": ("optuna", "torch"),
}
PEERS = ("random", *_LIBRARIES)


def known_methods(names: tuple[str, ...], own_strategies: Mapping[str, Options]) -> None:
    """Raise UserError when one of `names` is no peer, strategy of this project or key of `own_strategies`, or
    is not installed."""
    choices = (*PEERS, *STRATEGIES, *own_strategies)
    for name in names:
        if name not in choices:
            raise UserError(f"--methods must be some of {','.join(choices)}, got {name!r}{did_you_mean(name, choices)}")
        missing = [library for library in _LIBRARIES.get(name, ()) if find_spec(library) is None]
        if missing:
            remedy = f"in a clone, pip install '.[peers]' (or pip install {missing[0]}), or leave it out of --methods"
            raise UserError(f"--methods: {name} needs {', '.join(missing)}, which is not installed; {remedy}")


def is_applicable(name: str, problem: Problem) -> bool:
    """Return whether the method can search the problem: CMA-ES needs a continuous space."""
    return name != "cma-es" or problem.group in (Group.FUNCTIONS, Group.NOISY, Group.BBOB)


def make_method(name: str, problem: Problem, seed: int, own_strategies: Mapping[str, Options]) -> Method:
    """The method `name`; `own_strategies`: strategies of this project with options, by their labels."""
    if name == "random":
        from benchmarks.peers.methods.uniform import Uniform

        return Uniform(problem, seed)
    if name in _LIBRARIES:
        from benchmarks.peers.methods.of_optuna import OfOptuna

        return OfOptuna(problem, seed, name)
    from benchmarks.peers.methods.ours import Ours

    return Ours(problem, seed, own_strategies.get(name, {"name": name}))
