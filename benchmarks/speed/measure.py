"""One measurement, in its own process: `python -m benchmarks.speed.measure NAME '{"option": …}'`
prints JSON.

Each measurement has its own process, because the number of BLAS threads is fixed when numpy is
imported, and memory must not contain earlier measurements. The settings are the paper's (BBKB,
section 5).
"""

import json
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bbkb.objectives.reference import DataSource, find_objective
from bbkb.orchestrator.ask_tell.candidates import CandidateOptimizer
from bbkb.orchestrator.ask_tell.checks import named_strategy
from bbkb.orchestrator.bandit.arms import Arms
from bbkb.orchestrator.bandit.arrays import Floats, freeze
from bbkb.orchestrator.bandit.goals import Goals
from bbkb.orchestrator.bandit.kernels import RBF
from bbkb.orchestrator.bandit.start.warm_start import RandomStart
from bbkb.orchestrator.bandit.strategies.bbkb import BBKB
from bbkb.orchestrator.bandit.strategy import Choose, Observation
from benchmarks.papers.nasbench101_cells import Cells
from benchmarks.peers.search import SIGMA, play
from benchmarks.speed.dispatching import Answer, memory, throughput

NOISE = 0.01
BANDWIDTHS = {"cadata": 12.5, "abalone": 17.5, "nasbench101": 100.0, "synthetic": 1.0}


@dataclass(frozen=True)
class Problem:
    """`features` (A, d), noise-free `values` (A,) in [0, 1], bandwidth of the Gaussian kernel."""

    features: Floats
    values: Floats
    bandwidth: float

    def rewards(self, arms: list[int], noise: np.random.Generator) -> Floats:
        """The values of these arms with noise N(0, 0.01²)."""
        rewards: Floats = self.values[arms] + NOISE * noise.standard_normal(len(arms))
        return rewards

    def ratio(self, arms: list[int]) -> float:
        """The regret of these pulls, divided by the expected regret of uniform pulls."""
        best = self.values.max()
        return float((best - self.values[arms]).sum() / (len(arms) * (best - self.values.mean())))

    def strategy(self, horizon: int, rule: str, covariance: str = "embedded") -> BBKB:
        """BBKB as in the paper's experiments: λ = ξ² = 1e-4, F = 1, δ = 1/T, q̄ = 2, C̃ = 2."""
        options: dict[str, Any] = {"termination": rule, "local_covariance": covariance}
        return BBKB(
            kernel=RBF(self.bandwidth),
            regularization=NOISE**2,
            noise_variance=NOISE**2,
            norm_bound=1.0,
            delta=1.0 / horizon,
            oversampling=2.0,
            ratio_threshold=2.0,
            warm_start=RandomStart(1),
            **options,
        )


def load(name: str, arms: int | None = None, dimension: int = 20) -> Problem:
    """The problem `name`; `synthetic` has uniform features (`arms`, `dimension`)."""
    if name == "synthetic":
        features = freeze(np.random.default_rng(0).random((arms or 10_000, dimension)))  # as a campaign's candidates
        shown = features[:, : min(dimension, 6)].T  # column by column: no second array of that size
        values = sum((np.sin(3.0 * column) for column in shown), np.zeros(len(features))) / len(shown)
        return Problem(features, values, BANDWIDTHS[name] * np.sqrt(dimension / 6.0))
    source = DataSource.find()
    table: Any = (Cells("all", NOISE) if name == "nasbench101" else find_objective(name)()).load(source)
    target = np.nanmean(table.target, axis=1)
    values = (target - target.min()) / np.ptp(target)
    return Problem(np.ascontiguousarray(table.features), values, BANDWIDTHS[name])


def mebibytes() -> float:
    """The largest resident memory of this process so far, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0


def run(problem: Problem, strategy: BBKB, horizon: int, seed: int) -> Answer:
    """A complete run; the seconds are CPU time of `init`, `ask` and `tell`."""
    noise, clock, batches = np.random.default_rng([seed, 9]), 0.0, 0
    picked_arms: list[int] = []
    began = time.process_time()
    state = strategy.init(problem.features, np.random.default_rng([seed, 0]))
    clock += time.process_time() - began
    while len(picked_arms) < horizon:
        began = time.process_time()
        decision = strategy.ask(state, (), horizon - len(picked_arms))
        clock += time.process_time() - began
        assert isinstance(decision, Choose)
        picks = [pick.arm for pick in decision.picks]
        results = [
            Observation(arm, float(reward)) for arm, reward in zip(picks, problem.rewards(picks, noise), strict=True)
        ]
        began = time.process_time()
        state = strategy.tell(state, results, np.random.default_rng([seed, 1, batches]))
        clock += time.process_time() - began
        picked_arms, batches = picked_arms + picks, batches + 1
    return {
        "seconds": clock,
        "ratio": problem.ratio(picked_arms),
        "batches": batches,
        "arms": picked_arms,
        "mebibytes": mebibytes(),
    }


def ours(name: str, horizon: int, rule: str, covariance: str = "embedded", seed: int = 0) -> Answer:
    """BBKB of this project."""
    problem = load(name)
    return run(problem, problem.strategy(horizon, rule, covariance), horizon, seed)


def authors(name: str, horizon: int, rule: str, folder: str, seed: int = 0) -> Answer:
    """The authors' code with its fast kernel. It starts with two arms: it fails with one."""
    sys.path.insert(0, str(Path(folder)))
    import bkb_lib
    import utils
    from sklearn.gaussian_process import kernels

    problem = load(name)
    kernel = utils.FastMixinKernel(
        kernels.RBF(problem.bandwidth), kernels.PairwiseKernel(gamma=0.5 / problem.bandwidth**2, metric="rbf")
    )
    noise, state = np.random.default_rng([seed, 9]), np.random.RandomState(seed)
    make = bkb_lib.Batch_BKB if rule == "global" else bkb_lib.Local_Batch_BKB
    arms = [int(arm) for arm in state.choice(len(problem.values), 2, replace=False)]
    began = time.process_time()
    algorithm = make(
        lam=1e-4, dot=kernel, fnorm=1.0, noise_variance=1e-4, delta=1.0 / horizon, qbar=2, ratio_threshold=2
    )
    algorithm.initialize(problem.features, arms, problem.rewards(arms, noise))
    batches, clock = 1, time.process_time() - began
    while len(arms) < horizon:
        began = time.process_time()
        picks = [int(arm) for arm in algorithm.predict()[0][: horizon - len(arms)]]
        rewards = problem.rewards(picks, noise)
        algorithm.update(picks, rewards, state)
        clock += time.process_time() - began
        arms, batches = arms + picks, batches + 1
    return {"seconds": clock, "ratio": problem.ratio(arms), "batches": batches, "mebibytes": mebibytes()}


def goals(objectives: int, results: int, cycles: int, seed: int = 0) -> Answer:
    """Seconds for a suggestion of the default strategy with `objectives` objectives, after
    `results` results on Cadata.

    Each of the `cycles` consists of single picks for 3 % of the results, and a refit.
    """
    problem, strategy = load("cadata"), named_strategy("bbkb")
    features = (problem.features - problem.features.mean(axis=0)) / problem.features.std(axis=0)
    rng = np.random.default_rng(seed)
    others = np.sin(features @ rng.standard_normal((features.shape[1], objectives - 1)))

    def observe(pulled: list[int]) -> list[Observation]:
        rewards = problem.rewards(pulled, rng)
        return [
            Observation(arm, float(reward), tuple(others[arm].tolist()))
            for arm, reward in zip(pulled, rewards, strict=True)
        ]

    state = strategy.init(Arms.of(features).with_goals(Goals(objectives)), rng)
    arms = rng.choice(len(features), results // 5, replace=False)
    state = strategy.tell(state, observe(rng.choice(arms, results).tolist()), rng)
    began, picks = time.process_time(), 0
    for _ in range(cycles):
        pending: list[int] = []
        for _ in range(round(0.03 * results)):
            decision = strategy.ask(state, pending, 1)
            assert isinstance(decision, Choose)
            pending.append(decision.picks[0].arm)
        state = strategy.tell(state, observe(pending), rng)
        picks += len(pending)
    return {"suggestion": (time.process_time() - began) / picks}


def defaults(arms: int, workers: int, horizon: int, dimension: int = 6, seed: int = 0) -> Answer:
    """CPU seconds of a suggestion with `ask`, `tell` and all refits; `horizon` evaluations."""
    problem, rng = load("synthetic", arms, dimension), np.random.default_rng([seed, 9])
    optimizer = CandidateOptimizer(problem.features, seed=seed)
    picked_arms: list[int] = []

    def begin(number: int) -> float:
        if number == len(picked_arms):  # all workers are free at the start
            picked_arms.extend(map(int, optimizer.ask(min(workers, horizon) if number == 0 else 1)))
        return float(rng.lognormal(0.0, SIGMA))

    def finish(number: int) -> None:
        arm = picked_arms[number]
        optimizer.tell([arm], [problem.values[arm] + NOISE * rng.standard_normal()])

    began = time.process_time()
    play(workers, horizon, begin, finish, "the default optimizer")
    return {"suggestion": (time.process_time() - began) / horizon, "arms": picked_arms}


MEASUREMENTS: dict[str, Callable[..., Answer]] = {
    "ours": ours,
    "defaults": defaults,
    "authors": authors,
    "goals": goals,
    "throughput": throughput,
    "memory": memory,
}

if __name__ == "__main__":
    found = MEASUREMENTS[sys.argv[1]](**json.loads(sys.argv[2]))
    print(json.dumps({key: value for key, value in found.items() if key != "arms"}))
