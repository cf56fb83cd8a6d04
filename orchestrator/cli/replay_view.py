"""The output of `bbkb replay`: the posterior at a position of the log, and the differences found by
repeating computations."""

from collections.abc import Callable, Iterable, Mapping

import numpy as np
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from orchestrator.campaign.events import BatchChosen
from orchestrator.display.live import assignments
from orchestrator.session.problem import Problem, Progress
from orchestrator.session.replaying import Replayed
from orchestrator.wording import plural

Parameters = Callable[[int], Mapping[str, object]]  # parameters of an arm

REASONS_SHOWN = 10


def render_replay(replayed: Replayed, problem: Problem, parameters: Parameters, top: int) -> RenderableType:
    """Return the best arms by upper bound, the last choice with its reasons, and the comparison."""
    return Group(*_parts(replayed, problem, parameters, top))


def _parts(replayed: Replayed, problem: Problem, parameters: Parameters, top: int) -> Iterable[RenderableType]:
    campaign = replayed.progress.campaign
    totals = campaign.totals
    refresh = campaign.refresh
    yield Text(
        f"after {replayed.position} events: {totals.chosen} chosen, {totals.succeeded} succeeded, "
        f"{totals.failed} failed, {len(campaign.running)} running, {len(campaign.finished)} not yet in the model, "
        f"{plural(refresh.round, 'refit')}, {refresh.dictionary_size} inducing points"
    )
    yield Text("")
    yield from _posterior(replayed.progress, problem, parameters, top)
    if replayed.last_choice is not None:
        yield Text("")
        yield from _reasons(replayed.last_choice)
    if replayed.repeated:
        yield Text("")
        yield Text(
            f"{replayed.repeated} computations of the strategy were repeated here: "
            + (f"{len(replayed.differences)} differ" if replayed.differences else "all results are equal")
        )
        yield from (Text(f"  {difference}") for difference in replayed.differences)


def _posterior(progress: Progress, problem: Problem, parameters: Parameters, top: int) -> Iterable[RenderableType]:
    belief = problem.strategy.posterior(progress.model)
    pulls = progress.model.pulls
    order = np.argsort(-belief.ucb, kind="stable")[:top]
    yield Text(f"the {len(order)} arms with the largest upper bounds, with no pull pending (rewards are maximized)")
    table = Table("arm", "mean", "± deviation", "upper bound", "pulls", "parameters", box=None, pad_edge=False)
    for arm in order.tolist():
        deviation = float(np.sqrt(belief.unit * belief.variance[arm]))
        table.add_row(
            str(arm),
            f"{belief.mean[arm]:.6g}",
            f"{deviation:.3g}",
            f"{belief.ucb[arm]:.6g}",
            str(int(pulls.counts[arm])),
            Text(assignments(parameters(arm))),
        )
    yield table


def _reasons(choice: BatchChosen) -> Iterable[RenderableType]:
    kind = "for idle workers (version 0.1)" if choice.is_filler else "trials"
    yield Text(f"the last choice, {len(choice.picks)} {kind}, ended by: {choice.reason}")
    table = Table("trial", "arm", "mean", "width", "variance (1/λ)", box=None, pad_edge=False)
    for pick in choice.picks[:REASONS_SHOWN]:
        reasons = ("" if number is None else f"{number:.6g}" for number in (pick.mean, pick.width, pick.variance))
        table.add_row(str(pick.trial), str(pick.arm), *reasons)
    yield table
    if len(choice.picks) > REASONS_SHOWN:
        yield Text(f"… and {len(choice.picks) - REASONS_SHOWN} more")


def show_replay(console: Console, replayed: Replayed, problem: Problem, top: int) -> None:
    """Print the replay with the `top` best arms."""
    parameters = replayed.progress.pool.candidates.parameters
    console.print(render_replay(replayed, problem, parameters, top), soft_wrap=True)
