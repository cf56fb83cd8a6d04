"""Describes a campaign before it runs, for `bbkb run --dry-run` and `bbkb validate`."""

from collections.abc import Iterator
from itertools import islice

from rich.console import Console

from bbkb.objectives.command import ShellCommand
from bbkb.objectives.parameters import Constant
from bbkb.objectives.space import SearchSpace, explain
from bbkb.orchestrator.bandit.model.model import model_of
from bbkb.orchestrator.bandit.strategy import Choose, Sequential
from bbkb.orchestrator.campaign.events import ExistingTaken
from bbkb.orchestrator.campaign.policy import Ask, Begin
from bbkb.orchestrator.campaign.settings import Budget, ModelStopping, Settings
from bbkb.orchestrator.credentials import has_password, stored
from bbkb.orchestrator.engine.engine import replay, strategy_errors
from bbkb.orchestrator.history.facts import assignments
from bbkb.orchestrator.report.terminal import say
from bbkb.orchestrator.session.build import Parts, missing_program, remark_on_reports, with_training
from bbkb.orchestrator.session.executors import unenforced_limits
from bbkb.orchestrator.session.open import first_events
from bbkb.orchestrator.settings.options import objective_of
from bbkb.orchestrator.settings.strategies import build_strategy
from bbkb.orchestrator.wording import duration, plural

_SHOWN = 5  # the number of configurations to print


def describe(settings: Settings, parts: Parts) -> str:
    """Describe a campaign in one line."""
    arms, dimensions = parts.problem.candidates.features.shape
    workers = _count_workers(settings)
    goals = settings.goals
    return (
        f"{plural(arms, 'candidate')} in {plural(dimensions, 'dimension')}, "
        f"strategy {settings.strategy['name']}, "
        f"{_budget_text(settings.budget)} on {plural(workers, 'worker')}"
        + f"; objectives {', '.join(map(str, goals.objectives))}" * (len(goals.objectives) > 1)
        + f"; constraints {', '.join(map(str, goals.constraints))}" * bool(goals.constraints)
        + f"; {parts.description}" * bool(parts.description)
    )


def _count_workers(settings: Settings) -> int:
    return 1 if settings.workers.traits.one_at_a_time else settings.workers.count


def _budget_text(budget: Budget) -> str:
    """Return the number of steps or evaluations that ends the campaign."""
    counts = [] if budget.steps is None else [plural(budget.steps, "step")]
    if budget.steps is None or budget.evaluations < budget.steps:
        counts.append(plural(budget.evaluations, "evaluation"))
    return " or ".join(counts)


def say_remarks(console: Console, settings: Settings, parts: Parts, existing_results: ExistingTaken | None) -> None:
    """Print warnings and the existing data."""
    for warning in warnings(settings, parts):
        say(console, f"warning: {warning}")
    if existing_results is not None:
        say(console, f"known results: {existing_results}")


def warnings(settings: Settings, parts: Parts) -> Iterator[str]:
    """Yield warnings about settings that are allowed but probably not intended."""
    remarks = (
        parts.problem.candidates.remark,
        unenforced_limits(settings),
        remark_on_reports(settings, parts.training_objective),
    )
    yield from filter(None, remarks)
    if missing := missing_program(settings):
        yield f"{missing}; each node of the cluster needs it"
    command = objective_of(settings.objective)
    varying = [name for name, parameter in settings.space.items() if not isinstance(parameter, Constant)]
    if isinstance(command, ShellCommand) and (unused := command.unused(varying)):
        yield f"objective.command does not contain {{{unused[0]}}}: its program only finds it in BBKB_PARAMETERS"
    count = len(parts.problem.candidates)
    budget = settings.budget
    if budget.evaluations > count and not parts.problem.pool.grows:
        effect = "candidates are evaluated again, which gives new information only if values are noisy"
        if settings.objective.deterministic:
            effect = "the campaign ends when each has been evaluated"
        elif settings.objective.deterministic is None and model_of(parts.problem.strategy) is not None:
            effect = "candidates are evaluated again, until equal values show that there is no noise"
        yield f"the budget of {budget.evaluations:,} evaluations is above the number of candidates, {count:,}: {effect}"
    rule = with_training(settings, parts.training_objective).early_stopping
    last_step = rule.last_step if isinstance(rule, ModelStopping) else None
    if last_step is not None and budget.steps is not None and budget.steps < last_step:
        yield (
            f"budget.steps, {budget.steps}, is less than one training, early_stopping.last_step: {last_step}: one "
            "trial is trained, beyond the budget; a search needs the steps of ten trainings or more"
        )
    if has_password(settings.store):
        yield (
            "the password of the store is in the campaign file. It is written nowhere else, so a resume "
            "needs it from the environment: PGPASSWORD, a password file (~/.pgpass, PGPASSFILE), or ${VAR} in the URL"
        )
    if isinstance(build_strategy(settings.strategy), Sequential) and settings.workers.count > 1:
        yield (
            f"the strategy {settings.strategy['name']} waits for each result before it chooses again, so one of "
            f"the {settings.workers.count} workers has work: set workers.count to 1, or use bbkb or gp_bucb"
        )


def say_plan(
    console: Console, settings: Settings, parts: Parts, existing_results: ExistingTaken | None, address: str | None
) -> None:
    """Print the plan of a run: candidates, workers, budget, store and first configurations."""
    say(console, f"{settings.name}: {describe(settings, parts)}")
    explain_space(console, settings, parts)
    say_remarks(console, settings, parts, existing_results)
    budget = settings.budget
    workers = settings.workers
    ends = [_budget_text(budget)]
    ends += [] if budget.hours is None else [duration(3600.0 * budget.hours)]
    ends += [] if budget.target is None else [f"value {budget.target:g}"]
    if (rule := budget.stop_when) is not None:
        ends += [] if rule.no_gain_of is None else [f"no gain of {rule.no_gain_of:g} in {rule.within} evaluations"]
        ends += [] if rule.expected_gain_below is None else [f"an expected gain below {rule.expected_gain_below}"]
    limit = "no time-out" if workers.timeout_seconds is None else f"time-out {duration(workers.timeout_seconds)}"
    cluster = f", Ray cluster {address}" if address else ""
    retries = "lost workers, time-outs and out of memory only" if workers.retries is None else str(workers.retries)
    memory = "" if workers.memory_gb is None else f", {workers.memory_gb:g} GB"
    lines = {
        "ends after": " or ".join(ends),
        "workers": f"{_count_workers(settings)} ({workers.executor}{cluster})",
        "an evaluation": f"CPUs: {workers.cpus:g}, GPUs: {workers.gpus:g}{memory}, {limit}, retries: {retries}",
        "store": stored(settings.store),
        "runs": settings.runs if settings.run is None else f"{settings.runs}/{settings.run}",
    }
    for name, text in lines.items():
        say(console, f"  {name}: {text}")
    say(console, "the first evaluations:")
    for arm in islice(first_arms(settings, parts, existing_results), _SHOWN):
        say(console, f"  {assignments(parts.problem.candidates.parameters(arm))}")
    say(console, "dry run: nothing was written or started")


def explain_space(console: Console, settings: Settings, parts: Parts) -> None:
    """Print the size of the space and the number of enqueued configurations."""
    if settings.space:
        for line in explain(SearchSpace(settings.space, settings.forbid), parts.problem.candidates):
            say(console, f"  {line}")
    if parts.enqueued:
        say(console, f"  enqueued trials: {len(parts.enqueued)}")


def first_arms(settings: Settings, parts: Parts, existing_results: ExistingTaken | None) -> list[int]:
    """Return the arms that a run would evaluate first, at most one for each worker."""
    engine = replay(parts.problem, first_events(settings, parts, existing_results))
    if existing := engine.state.existing_observations:
        engine.record(engine.compute(Begin(existing), engine.state))
    limit = min(settings.workers.count, settings.budget.evaluations) - len(parts.enqueued)
    if limit <= 0:
        return list(parts.enqueued)
    with strategy_errors("choosing a batch"):
        decision = engine.choose(Ask(engine.state.pending, limit))
    return [*parts.enqueued, *([pick.arm for pick in decision.picks] if isinstance(decision, Choose) else [])]
