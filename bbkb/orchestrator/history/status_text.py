"""A campaign's status as text for display, and as flat values for JSON."""

from collections.abc import Mapping
from dataclasses import asdict

from bbkb.orchestrator.campaign.clock import LABELS
from bbkb.orchestrator.campaign.events import Recommendation
from bbkb.orchestrator.campaign.status import GoalsStatus, Status, WorkersStatus
from bbkb.orchestrator.wording import duration, iso, joined, plural, rounded, short_text


def as_plain(status: Status) -> dict[str, object]:
    """Return the status as flat, plain values for JSON.

    Times are in ISO 8601, UTC; durations are in seconds.
    """
    plain = asdict(status)
    best = plain.pop("best")
    for part in ("trials", "budget", "workers", "model"):
        plain |= plain.pop(part)
    unprefixed = ("direction", "recommended")
    plain |= {name if name in unprefixed else f"best_{name}": best[name] for name in best}
    return {
        **plain,
        "recent": [{**attempt._asdict(), "time": iso(attempt.time)} for attempt in status.trials.recent],
        "last_time": iso(status.last_time),
        "done": status.trials.done,
        "spent": status.spent,
        "outcomes": status.trials.outcomes,
    }


def trials_text(status: Status) -> str:
    """Return the number of ended trials and the number of failed ones."""
    failed = f", {status.trials.failed} failed" if status.trials.failed else ""
    return f"{status.trials_text.replace('/', ' of ')}{failed}"


def headline(status: Status) -> str:
    """Return one plain line, for output that is not a terminal."""
    trials = status.trials
    best = status.best
    left = status.budget.left_seconds
    stopped = f" ({trials.stopped} stopped early)" if trials.stopped else ""
    return joined(
        ", ",
        f"{status.trials_text} done{stopped}",
        "no value yet" if best.value is None else f"best {best.named} ({best.direction})",
        goals_text(status.goals),
        progress(status),
        f"{trials.in_flight} running",
        f"{trials.failed} failed",
        f"utilization {status.workers.utilization:.0%}",
        left is not None and status.phase != "stopping" and f"about {duration(left)} left",
    )


def search_facts(status: Status) -> list[tuple[str, str]]:
    """Return names and texts, which may be empty, of the search's results and expected gain."""
    recommended = status.best.recommended
    return [
        ("recommended", "" if recommended is None else recommendation(recommended, status)),
        ("gain", gains_text(status)),
        ("goals", goals_text(status.goals)),
        ("population", ", ".join(population_parts(status))),
    ]


def recommendation(recommended: Recommendation, status: Status) -> str:
    """Describe the recommended configuration and the reason for it."""
    is_best = recommended.parameters == status.best.parameters
    best = "it also has the best value"
    why = best if is_best else "best estimate: a best single value may be noise"
    return f"{recommended}  {assignments(recommended.parameters)} ({why})"


def assignments(parameters: Mapping[str, object]) -> str:
    """Return text like `learning_rate=0.01, layers=3`, with rounded values."""
    return ", ".join(f"{name}={short_text(value)}" for name, value in parameters.items())


def gains_text(status: Status) -> str:
    """Return the age of the last improvement, and the largest one that the model expects; empty
    before the first result."""
    if status.model.last_gain is None:
        return ""
    past = f"the last was {plural(status.model.last_gain, 'result')} ago"
    return joined("; ", past, expected_gain(status))


def expected_gain(status: Status) -> str:
    """Return the largest further gain that the model expects; empty if it is unknown."""
    gain = status.model.possible_gain
    if gain is None:
        return ""
    return "the model expects " + (f"at most {rounded(gain, 3)} more" if gain > 0.0 else "no more")


def goals_text(goals: GoalsStatus | None) -> str:
    """Return front and hypervolume, and the share of feasible results; empty if there are none."""
    if goals is None:
        return ""
    volume = "" if goals.hypervolume is None else f", hypervolume {goals.hypervolume:.6g}"
    share = None if goals.feasible is None else f"{goals.feasible:.0%} of the results feasible"
    return joined(
        ", ",
        len(goals.objectives) > 1 and f"front of {plural(goals.front, 'trial')}{volume}",
        share and goals.constraints and f"{share} ({', '.join(goals.constraints)})",
    )


def population_parts(status: Status) -> tuple[str, ...]:
    """Return the number of members of a population, and their steps and copies; empty without
    one."""
    population = status.population
    if population is None:
        return ()
    least, largest = population.steps
    steps = f"step {least}" if least == largest else f"steps {least} to {largest}"
    of_all = "" if population.last_step is None else f" of {population.last_step}"
    copies = plural(population.copies, "copied checkpoint")
    return plural(population.members, "member"), f"{steps}{of_all}, {copies}"


def progress(status: Status) -> str:
    """Return the algorithm's progress: refits in asynchronous mode, batches otherwise."""
    budget, model = status.budget, status.model
    steps = "" if budget.step_budget is None else f"step {budget.steps} of {budget.step_budget}, "
    if model.is_asynchronous:
        return f"{steps}{plural(model.refreshes, 'refit')}"
    return f"{steps}batch {model.batch} of {model.batch_size}"


def idle_text(workers: WorkersStatus) -> str:
    """Return the causes of idle time as shares of the workers' time, the largest first.

    Shares below one percent are omitted.
    """
    idle = workers.idle_seconds
    total = sum(idle.values())
    shares = {cause: (1.0 - workers.utilization) * idle[cause] / total for cause in idle}
    listed = sorted((cause for cause in idle if shares[cause] >= 0.01), key=idle.__getitem__)
    return ", ".join(f"{LABELS[cause]} {shares[cause]:.0%}" for cause in reversed(listed))
