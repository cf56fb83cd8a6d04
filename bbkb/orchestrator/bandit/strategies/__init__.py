"""The strategies, by their names in a campaign file. A new strategy is one file and one line here.

A strategy that only reproduces a published method for comparisons belongs in `papers`. Code that
several strategies share belongs in the packages beside this one.
"""

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any


class Strategies(Mapping[str, type[Any]]):
    """The classes of the strategies by name. A class is imported when it is looked up, so a
    campaign imports only its own strategy.

    Args:
        references: name → `module:Class` in `bbkb.orchestrator`.
    """

    def __init__(self, references: Mapping[str, str]) -> None:
        self._references = {name: f"bbkb.orchestrator.{place}" for name, place in references.items()}

    def __getitem__(self, name: str) -> type[Any]:
        module, _, attribute = self._references[name].partition(":")
        cls: type[Any] = getattr(import_module(module), attribute)
        return cls

    def __iter__(self) -> Iterator[str]:
        return iter(self._references)

    def __len__(self) -> int:
        return len(self._references)

    def name_of(self, cls: type) -> str | None:
        """Return the name of a listed class, without importing any; None if it is not listed."""
        reference = f"{cls.__module__}:{cls.__qualname__}"
        return next((name for name, place in self._references.items() if place == reference), None)


STRATEGIES = Strategies(
    {
        "bbkb": "bandit.strategies.bbkb:BBKB",
        "uniform": "bandit.strategies.uniform:Uniform",
        "gp_ucb": "bandit.strategies.gp_ucb:GPUCB",
        "bkb": "bandit.strategies.bkb:BKB",
        "compressed_ucb": "bandit.papers.compressed:CompressedUCB",
        "compressed_ei": "bandit.papers.compressed:CompressedEI",
        "compressed_mpi": "bandit.papers.compressed:CompressedMPI",
        "gp_bucb": "bandit.strategies.gp_bucb:GPBUCB",
        "regularized_evolution": "bandit.papers.regularized_evolution:RegularizedEvolution",
        "epsilon_greedy": "bandit.papers.epsilon_greedy:EpsilonGreedy",
        "async_ts": "bandit.strategies.async_ts:AsyncTS",
        "igp_ucb": "bandit.papers.igp_ucb:IGPUCB",
        "expected_improvement": "bandit.strategies.gp_ucb:ExpectedImprovement",
        "probability_of_improvement": "bandit.strategies.gp_ucb:ProbabilityOfImprovement",
        "gp_threds": "bandit.papers.gp_threds:GPThreDS",
        "adaptive_discretization": "bandit.papers.adaptive_discretization:AdaptiveDiscretization",
        "pbt": "bandit.strategies.pbt:PBT",
        "optuna": "adapters.optuna_sampler:OptunaSampler",
    }
)
