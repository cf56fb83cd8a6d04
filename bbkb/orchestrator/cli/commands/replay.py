"""`bbkb replay`: repeats a run's decisions on this machine, and shows the posterior and the
differences."""

from collections.abc import Iterator
from typing import Annotated

import numpy as np
import typer
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from bbkb.orchestrator.campaign.events import BatchChosen
from bbkb.orchestrator.cli.arguments import RunFolder
from bbkb.orchestrator.engine.engine import Problem
from bbkb.orchestrator.engine.replaying import Replayed, replay_until
from bbkb.orchestrator.errors import UserError
from bbkb.orchestrator.history.facts import assignments
from bbkb.orchestrator.report.terminal import FAILED, SafeConsole
from bbkb.orchestrator.session.build import build
from bbkb.orchestrator.settings.loading import load
from bbkb.orchestrator.store import runs
from bbkb.orchestrator.wording import plural

_REASONS_SHOWN = 10


def replay(
    folder: RunFolder,
    until: Annotated[int | None, typer.Option("--until", help="Use only the first N events; default: all.")] = None,
    check: Annotated[bool, typer.Option(help="Repeat every choice and refresh on this machine and compare.")] = True,
    top: Annotated[int, typer.Option(min=1, help="The number of arms of the posterior to show.")] = 10,
    runs_code: Annotated[
        bool, typer.Option("--run-code", help="Import the code of another user's run, with your rights.")
    ] = False,
) -> None:
    """Show the model and the reasons at any point of a run's log. Exit code 1: this machine decides
    differently."""
    old = runs.open_run(folder)
    if not (runs_code or runs.is_own(old.folder)):
        raise UserError(
            f"{old.folder} is another user's run, and a replay imports the code that its campaign file names: read "
            "it, and give --run-code"
        )
    problem = build(load(old.settings_file)).problem
    replayed = replay_until(problem, old.events(), until, check)
    SafeConsole().print(Group(*_parts(replayed, problem, top)), soft_wrap=True)
    if replayed.differences:
        raise typer.Exit(FAILED)


def _parts(replayed: Replayed, problem: Problem, top: int) -> Iterator[RenderableType]:
    """Yield the totals, the best arms, the last choice with its reasons, and the comparison."""
    campaign = replayed.engine.state
    totals = campaign.totals
    refresh = campaign.refresh
    yield Text(
        f"after {replayed.position} events: {totals.chosen} chosen, {totals.succeeded} succeeded, "
        f"{totals.failed} failed, {len(campaign.running)} running, {len(campaign.finished)} not yet in the model, "
        f"{plural(refresh.round, 'refit')}, {plural(refresh.dictionary_size, 'inducing point')}\n"
    )
    yield from _posterior(replayed, problem, top)
    if replayed.last_choice is not None:
        yield from _reasons(replayed.last_choice)
    if replayed.repeated:
        yield Text(
            f"\n{replayed.repeated} computations of the strategy were repeated here: "
            + (f"{len(replayed.differences)} differ" if replayed.differences else "all results are equal")
        )
        yield from (Text(f"  {difference}") for difference in replayed.differences)


def _posterior(replayed: Replayed, problem: Problem, top: int) -> Iterator[RenderableType]:
    model = replayed.engine.model
    parameters = replayed.engine.pool.candidates.parameters
    belief = problem.strategy.posterior(model)
    order = np.argsort(-belief.ucb, kind="stable")[:top]
    yield Text(f"the {len(order)} arms with the largest upper bounds, with no pull pending (rewards are maximized)")
    table = Table("arm", "mean", "± deviation", "upper bound", "pulls", "parameters", box=None, pad_edge=False)
    for arm in order.tolist():
        deviation = float(np.sqrt(belief.unit * belief.variance[arm]))
        numbers = (f"{belief.mean[arm]:.6g}", f"{deviation:.3g}", f"{belief.ucb[arm]:.6g}")
        table.add_row(str(arm), *numbers, str(int(model.pulls.counts[arm])), Text(assignments(parameters(arm))))
    yield table


def _reasons(choice: BatchChosen) -> Iterator[RenderableType]:
    trials = plural(len(choice.picks), "trial")
    yield Text(f"\nthe last choice, {trials}, ended by: {choice.reason}")
    table = Table("trial", "arm", "mean", "width", "variance (1/λ)", box=None, pad_edge=False)
    for pick in choice.picks[:_REASONS_SHOWN]:
        reasons = ("" if number is None else f"{number:.6g}" for number in (pick.mean, pick.width, pick.variance))
        table.add_row(str(pick.trial), str(pick.arm), *reasons)
    yield table
    if len(choice.picks) > _REASONS_SHOWN:
        yield Text(f"… and {len(choice.picks) - _REASONS_SHOWN} more")
