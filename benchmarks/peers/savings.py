"""`python -m benchmarks.peers.savings …`: what the rules of `budget.stop_when` would save, and what
they would cost.

One search runs to its end; each rule is applied to the results and choices as they came. Gains are
in units of (best − median) of the problem, as regrets are.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console

from benchmarks.command import run as run_command
from benchmarks.papers.findings import Cell, Findings, Table
from benchmarks.papers.writing import write
from benchmarks.peers.methods.ours import ours
from benchmarks.peers.methods.uniform import Uniform
from benchmarks.peers.problems import Evaluation, Point, Problem
from benchmarks.peers.search import search
from benchmarks.peers.settings import make_problem, problems
from benchmarks.peers.summary import group_of
from objectives.datasets import DataSource
from orchestrator.bandit.strategy import Choose, Decision, Prospect
from orchestrator.campaign.stop_when import Gains, StopWhen

RULES: Mapping[str, StopWhen] = {
    **{
        f"no gain of {gain} in {within}": StopWhen(no_gain_of=gain, within=within)
        for gain in (0.001, 0.01)
        for within in (32, 64)
    },
    **{
        f"expected gain below {below}, patience {patience}": StopWhen(expected_gain_below=below, patience=patience)
        for below in ("noise", 0.1, 0.02)
        for patience in (1, 2, 4)
    },
}


@dataclass
class Watched:
    """A strategy whose choices are noted. Everything else is that of `strategy`."""

    strategy: Any
    prospects: list[Prospect | None] = field(default_factory=list)

    def ask(self, state: Any, pending: Sequence[int], limit: int) -> Decision:
        decision: Decision = self.strategy.ask(state, pending, limit)
        self.prospects += [decision.prospect] * len(decision.picks) if isinstance(decision, Choose) else []
        return decision

    def __getattr__(self, name: str) -> Any:
        return getattr(self.strategy, name)


@dataclass
class Measured:
    """The problem of a search, with its rewards noted."""

    problem: Problem
    rewards: list[float | None] = field(default_factory=list)

    def evaluate(self, point: Point, rng: np.random.Generator) -> Evaluation:
        result = self.problem.evaluate(point, rng)
        self.rewards.append(result.reward)
        return result

    def __getattr__(self, name: str) -> Any:
        return getattr(self.problem, name)


def stops(problem: Problem, workers: int, evaluations: int, seed: int) -> dict[str, tuple[float, float]]:
    """For each rule the share of a search's evaluations that it saves, and the regret that it adds
    at the end."""
    measured = Measured(problem)
    method = ours(measured, seed, {"name": "bbkb"})
    learner = method._optimizer._search.learner if hasattr(method._optimizer, "_search") else method._optimizer._learner
    watched = Watched(learner.strategy)
    learner.strategy = watched
    unit = _unit(problem)
    gains, ended, regrets = dict.fromkeys(RULES, Gains()), dict.fromkeys(RULES, evaluations), list[float]()
    evaluated = 0

    def watch(done: int) -> None:
        nonlocal evaluated
        reward = max((value for value in results if value is not None), default=None)
        regrets.append(problem.evaluate(method.recommend(), np.random.default_rng(0)).regret)
        for name, rule in RULES.items():
            state = gains[name]
            if reward is not None:
                state = state.after_result(reward / unit, done, rule)
            for prospect in watched.prospects[evaluated:]:
                gain = None if prospect is None else prospect.gain / unit
                noise = None if prospect is None else prospect.noise / unit
                state = state.after_choice(1, gain, noise, rule)
            gains[name] = state
            if ended[name] == evaluations and state.stop_reason(rule, done, workers):
                ended[name] = min(evaluations, done + workers - 1)  # those that run end
        evaluated = len(watched.prospects)

    results: list[float | None] = []
    tell = method.tell

    def noted(number: int, reward: float | None) -> None:
        results.append(reward)
        tell(number, reward)

    method.tell = noted  # type: ignore[method-assign]
    search(measured, method, workers, evaluations, seed, ("", ""), watch)
    return {name: (1.0 - ended[name] / evaluations, regrets[ended[name] - 1] - regrets[-1]) for name in RULES}


def _unit(problem: Problem) -> float:
    """(Best − median) of the problem's rewards, from two points with different regrets."""
    rng = np.random.default_rng(0)
    search = Uniform(problem, 0)
    results = [problem.evaluate(search.ask(number), rng) for number in range(64)]
    low, high = min(results, key=lambda savings: savings.regret), max(results, key=lambda savings: savings.regret)
    return (low.expected - high.expected) / (high.regret - low.regret)


def main(
    problem: Annotated[str, typer.Option("--problems", help="As of benchmarks.peers.")] = "lcbench",
    workers: Annotated[int, typer.Option(min=1)] = 8,
    evaluations: Annotated[int, typer.Option(min=1)] = 200,
    seeds: Annotated[int, typer.Option(min=1)] = 1,
    out: Annotated[Path, typer.Option(help="Folder for results.")] = Path("runs/savings"),
    data: Annotated[Path | None, typer.Option(envvar="BBKB_DATA", help="Folder with the data sets.")] = None,
) -> None:
    """Measure how many evaluations each rule saves and how much regret it adds."""
    source, savings = DataSource.find(data), dict[str, dict[str, list[tuple[float, float]]]]()
    for name in problems(problem):
        for seed in range(seeds):
            for rule, pair in stops(make_problem(name, seed, source), workers, evaluations, seed).items():
                savings.setdefault(group_of(name), {}).setdefault(rule, []).append(pair)
    tables = []
    for group, rules in savings.items():
        rows: list[tuple[Cell, ...]] = [
            (rule, *np.mean(pairs, axis=0).tolist(), float(np.max(pairs, axis=0)[1])) for rule, pairs in rules.items()
        ]
        count = len(next(iter(rules.values())))
        title = f"W = {workers}, T = {evaluations}, {group}: {count} searches"
        columns = ("rule", "share saved", "regret added", "at most")
        tables.append(Table(f"savings-{group.replace(' ', '-')}", title, columns, rows))
    write(Findings(tables, []), out, Console(width=160))


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
app.command()(main)


if __name__ == "__main__":
    run_command(app, "benchmarks.peers.savings")
