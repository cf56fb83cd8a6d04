"""Fixed sequences of calls of `Optimizer` and `CandidateOptimizer`, whose suggestions are recorded.

`recorded/suggestions.json` holds the suggestions of version 0.2.0 (commit 49af9a84); those of some
searches of rows are newer, see `test_recorded`. The other files of that folder are optimizers that
version 0.2.0 saved or pickled after the first half of a course.
"""

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bbkb import Choice, Ordered, Range
from tests.orchestrator.ask_tell.searches import chosen_strategy

RECORDED = Path(__file__).parent / "recorded"
STEPS = 27
ROWS = np.random.default_rng(11).random((90, 2))
SPACE: Mapping[str, Any] = {
    "x": Range(0.0, 1.0),
    "lr": Range(1e-4, 1.0, log=True),
    "model": Choice(("svm", "forest")),
    "depth": Range(2, 8, integer=True, when={"model": "forest"}),
    "size": Ordered((8, 16, 32)),
}
TRAINED: Mapping[str, Any] = {"lr": Range(1e-4, 1.0, log=True), "width": Range(0.0, 1.0)}
ENQUEUED = [{"x": 0.25, "lr": 0.01, "model": "svm", "size": 8}, {"x": 0.5, "model": "forest"}]
ELSEWHERE = {"x": 0.125, "lr": 0.02, "model": "forest", "depth": 4, "size": 16}

Plain = Any  # suggestions as JSON has them


def reward_of(arm: int) -> float:
    """Return the reward of a row, without noise."""
    return float(np.sin(5 * ROWS[arm, 0]) + ROWS[arm, 1] ** 2)


def loss_of(configuration: Mapping[str, Any]) -> float:
    """Return the loss of a configuration of `SPACE`."""
    away = 0.0 if configuration["model"] == "forest" else 0.2
    depth = abs(configuration.get("depth", 5) - 4) / 10
    return float((configuration["x"] - 0.3) ** 2 + depth + away + configuration["lr"])


def error_at(configuration: Mapping[str, Any], step: int) -> float:
    """Return a curve of `TRAINED`, which falls to an end that is best at lr = 0.01, width = 0.6."""
    end = 0.2 * (math.log10(configuration["lr"]) + 2.0) ** 2 + (configuration["width"] - 0.6) ** 2
    return float(end + 0.5 / step)


def ask_rows(optimizer: Any, rounds: int, limit: int | None = 3) -> Plain:
    """Ask for rows with four in flight; every seventh evaluation fails."""
    asked: list[list[int]] = []
    for number in range(rounds):
        arms = [int(arm) for arm in optimizer.ask(limit)]
        asked.append(arms)
        if number == 2:
            optimizer.mark_pending([11])
        if number == 4:
            optimizer.tell([20, 11], [0.125, reward_of(11)])
        ready = optimizer.pending[: max(1, len(optimizer.pending) - 4)].tolist()
        for arm in ready:
            if arm % 7 == 0:
                optimizer.fail([arm])
            else:
                optimizer.tell([arm], [reward_of(arm)])
    return asked


def ask_space(optimizer: Any, rounds: int, limit: int = 2, takes_others: bool = True) -> Plain:
    """Ask for configurations of `SPACE` with three in flight, some of which fail."""
    asked: list[Plain] = []
    for number in range(rounds):
        asked.append([dict(configuration) for configuration in optimizer.ask(limit)])
        if number == 3 and takes_others:
            optimizer.tell(ELSEWHERE, 0.4)
        if number == 5 and takes_others:
            optimizer.mark_pending({**ELSEWHERE, "x": 0.5})
        for configuration in optimizer.pending[: max(1, len(optimizer.pending) - 3)]:
            if configuration["size"] == 32 and configuration["x"] > 0.8:
                optimizer.fail(configuration)
            else:
                optimizer.tell(configuration, loss_of(configuration))
    return asked


def ask_goals(optimizer: Any, rounds: int) -> Plain:
    """Ask for configurations with two objectives and a constraint."""
    asked: list[Plain] = []
    for _ in range(rounds):
        configurations = [dict(configuration) for configuration in optimizer.ask(2)]
        asked.append(configurations)
        values = [{"gain": -loss_of(each), "cost": each["x"], "memory": float(each["size"])} for each in configurations]
        optimizer.tell(configurations, values)
    return asked


def train(optimizer: Any, rounds: int, limit: int = 1) -> Plain:
    """Train configurations of `TRAINED` step by step, `limit` of them at a time and in turns.

    Return each configuration with the step after which it continued, and the last step it made.
    """
    made: list[Plain] = []
    for number in range(rounds):
        running = [(dict(each), optimizer.last_step(each)) for each in optimizer.ask(limit)]
        first = [step for _, step in running]
        last = list(first)
        is_running = [True] * len(running)
        while any(is_running):
            for index, (configuration, _) in enumerate(running):
                if not is_running[index]:
                    continue
                last[index] += 1
                value = error_at(configuration, last[index])
                if number % 9 == 5 and last[index] == 3:
                    value = math.nan
                if number % 11 == 7 and last[index] == 2:
                    optimizer.fail(configuration)
                    is_running[index] = False
                    continue
                is_running[index] = optimizer.report(configuration, value, last[index])
                if is_running[index] and last[index] == STEPS:
                    optimizer.tell(configuration, error_at(configuration, STEPS))
                    is_running[index] = False
        made += [[each, begun, end] for (each, _), begun, end in zip(running, first, last, strict=True)]
        if number % 10 == 9 and optimizer.paused:
            optimizer.stop(optimizer.paused[-1])
    return made


def rows_course(strategy: str, **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Return a factory of row optimizers, given one that takes their arguments."""
    existing = {"existing": options.pop("existing")} if "existing" in options else {}
    chosen = chosen_strategy(strategy, options, bool(existing))
    return lambda build: build("rows", ROWS, strategy=chosen, seed=2, **existing)


def space_course(strategy: str, **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Like `rows_course`, for `SPACE`."""
    return lambda build: build("space", SPACE, direction="minimize", strategy=strategy, seed=3, **options)


def training_course(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Like `rows_course`, for trainings in steps."""
    return lambda build: build("space", TRAINED, direction="minimize", steps=STEPS, **options)


GOALS = {
    "objectives": [{"metric": "gain"}, {"metric": "cost", "direction": "minimize"}],
    "constraints": [{"metric": "memory", "at_most": 24}],
}
# name → how to make the optimizer, the calls, and how often they are made before and after saving
COURSES: Mapping[str, tuple[Callable[[Callable[..., Any]], Any], Callable[..., Plain], Mapping[str, Any], int]] = {
    **{
        f"rows {name}": (rows_course(name), ask_rows, {}, 7)
        for name in (
            "bbkb", "uniform", "gp_ucb", "bkb", "compressed_ucb", "compressed_ei", "compressed_mpi", "gp_bucb",
            "regularized_evolution", "epsilon_greedy", "async_ts", "igp_ucb", "expected_improvement",
            "probability_of_improvement", "gp_threds", "adaptive_discretization",
        )
    },
    "rows bbkb long": (rows_course("bbkb"), ask_rows, {"limit": 2}, 40),
    "rows bbkb paper": (rows_course("bbkb", preset="paper", regularization=0.01), ask_rows, {"limit": None}, 6),
    "rows gp_bucb paper": (rows_course("gp_bucb", preset="paper"), ask_rows, {"limit": None}, 6),
    "rows existing": (rows_course("bbkb", existing=([3, 50, 3], [0.1, 0.2, 0.3])), ask_rows, {}, 7),
    "space bbkb": (space_course("bbkb", enqueue=ENQUEUED), ask_space, {}, 14),
    "space wide": (space_course("bbkb"), ask_space, {"limit": 6}, 6),
    "space uniform": (space_course("uniform"), ask_space, {"takes_others": False}, 7),
    "space gp_ucb": (space_course("gp_ucb"), ask_space, {"takes_others": False}, 8),
    "space async_ts": (space_course("async_ts"), ask_space, {"takes_others": False}, 8),
    "space expected_improvement": (space_course("expected_improvement"), ask_space, {"takes_others": False}, 8),
    "space goals": (
        lambda build: build("space", SPACE, strategy="bbkb", seed=4, **GOALS), ask_goals, {}, 7,
    ),
    "trained": (training_course(first_trials=8, seed=2), train, {}, 30),
    "trained in turns": (training_course(seed=5), train, {"limit": 3}, 14),
    "trained without checkpoints": (training_course(checkpoints=False, seed=6), train, {}, 24),
    "trained in turns, many": (training_course(first_trials=12, seed=7), train, {"limit": 2}, 40),
}  # fmt: skip
SAVED = ("rows bbkb", "rows existing", "rows bbkb paper", "space bbkb", "space goals", "trained", "trained in turns")
