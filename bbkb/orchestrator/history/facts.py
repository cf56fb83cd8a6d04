"""A campaign's status as a list of facts, the only wording of it: terminal, `bbkb status`, summary,
report, live page and notebook each lay this list out in a loop. For programs, `as_plain` has the
numbers."""

import json
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Literal, NamedTuple

from bbkb.orchestrator.campaign.events import StopReason
from bbkb.orchestrator.campaign.state import LABELS
from bbkb.orchestrator.campaign.status import GoalsStatus, Status
from bbkb.orchestrator.wording import duration, iso, joined, one_line, plural, rounded, short_text

_LONGEST = 160  # characters of a failure's message


class Fact(NamedTuple):
    """A line about a campaign.

    kind: "problem" if it needs attention, and "detail" if only a curious reader needs it.
    """

    label: str
    value: str
    remark: str = ""
    kind: Literal["", "problem", "detail"] = ""

    @property
    def text(self) -> str:
        """The value and the remark."""
        return f"{self.value} ({self.remark})" if self.remark else self.value


def facts(status: Status) -> list[Fact]:
    """Return what is known about a campaign, the most important first."""
    trials, workers, model, budget = status.trials, status.workers, status.model, status.budget
    outcomes = joined(
        ", ",
        trials.outcomes,
        trials.in_flight and f"{trials.in_flight:,} running",
        trials.waiting and f"{trials.waiting:,} queued",
        budget.step_budget is not None and f"{budget.steps:,} of {budget.step_budget:,} steps",
    )
    not_proposed = joined(
        "; ",
        trials.existing_outside and f"{trials.existing_outside} outside the space are learned and not proposed",
        trials.existing_unmatched and f"{trials.existing_unmatched} more are not learned",
    )
    aside = ", ".join([*map(str, workers.set_aside[:5]), *["…"] * (len(workers.set_aside) > 5)])
    is_calibrated = "of results within two standard deviations of the model's prediction"
    reliability = ", ".join(f"{correlation:.2f} at step {step}" for step, correlation in model.steps_reliability)
    # the causes of idle time as shares of the workers' time, the largest first; not those below one percent
    idle, total = workers.idle_seconds, sum(workers.idle_seconds.values())
    shares = {cause: (1.0 - workers.utilization) * idle[cause] / total for cause in idle}
    causes = sorted((cause for cause in idle if shares[cause] >= 0.01), key=idle.__getitem__, reverse=True)
    use = joined(
        "; ",
        ", ".join(f"{LABELS[cause]} {shares[cause]:.0%}" for cause in causes),
        workers.least_seconds > 0.0 and f"at least {duration(workers.least_seconds)} were needed at full utilization",
    )
    listed = [
        Fact("state", _state(status)),
        *_best(status),
        *goal_facts(status.goals),
        Fact("trials", trials_text(status), outcomes),
        Fact("time", duration(budget.elapsed_seconds), time_left(status)),
        *(
            Fact(
                "failures",
                f"{plural(cause.attempts, 'attempt')}: {cause.kind}",
                f"trial {cause.trial}: {one_line(cause.summary, _LONGEST)}",
                "problem",
            )
            for cause in trials.failures
        ),
        *(Fact("warning", remark, kind="problem") for remark in status.remarks),
        Fact("known results", f"{trials.existing:,}" if trials.existing else "", not_proposed),
        Fact(
            "set aside",
            aside and f"{plural(len(workers.set_aside), 'candidate')} that killed several workers",
            aside,
            "problem",
        ),
        Fact(
            "model",
            progress(status),
            plural(model.dictionary_size, "inducing point") if model.dictionary_size else "",
            "detail",
        ),
        Fact("calibration", "" if model.calibration is None else f"{model.calibration:.0%}", is_calibrated, "detail"),
        Fact("steps", reliability, "correlation with the final value", "detail"),
        Fact("workers", f"{trials.in_flight} of {workers.slots} busy" if workers.slots else "", kind="detail"),
        Fact("utilization", f"{workers.utilization:.0%}" if workers.slots else "", use, "detail"),
    ]
    return [fact for fact in listed if fact.value]


def headline(status: Status) -> str:
    """Return one plain line, for output that is not a terminal."""
    stopped = f" ({status.trials.stopped} stopped early)" if status.trials.stopped else ""
    return joined(
        ", ",
        f"{status.trials_text} done{stopped}",
        "no value yet" if status.best.value is None else f"best {status.best.named} ({status.best.direction})",
        *(fact.text for fact in goal_facts(status.goals)),
        progress(status),
        f"{status.trials.in_flight} running",
        f"{status.trials.failed} failed",
        f"utilization {status.workers.utilization:.0%}",
        status.budget.left_seconds is not None and status.phase != "stopping" and time_left(status),
    )


def advice(status: Status, folder: str) -> list[tuple[str, str]]:
    """Return what a user can do next: a sentence, and a command or an empty text."""
    run = shlex.quote(folder)
    budget = status.budget
    gain = status.model.possible_gain
    again = f"bbkb resume {run}"
    steps: list[tuple[str, str]] = []
    if status.phase in ("running", "stopping"):
        return [("The campaign runs. This ends it after its running evaluations:", f"bbkb stop {run}")]
    if status.best.value is not None:
        steps.append(("Use the configuration in a script:", f"train.py $(bbkb best {run} --format args)"))
    if status.outcome == "failed" and not status.trials.succeeded and status.trials.failed:
        # failed trials have spent steps, too; twice as many let all be tried again
        more = "" if budget.step_budget is None else f" --set budget.steps={2 * budget.step_budget}"
        return [("Fix the cause of the failures, then try the failed trials again:", f"{again} --retry-failed{more}")]
    if status.outcome != "finished":
        steps.append(("Continue where it stopped:", again))
    elif budget.is_counted:
        more = f"{again} --set budget.evaluations={2 * budget.evaluations}"
        if gain is None:
            steps.append(("Search longer:", more))
        elif gain > 0.0:
            steps.append((f"The model expects at most {rounded(gain, 3)} more. Search longer:", more))
        else:
            steps.append(("The model expects no further gain. Search all the same:", more))
    return steps


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


def assignments(parameters: Mapping[str, object]) -> str:
    """Return text like `learning_rate=0.01, layers=3`, with rounded values."""
    return ", ".join(f"{name}={short_text(value)}" for name, value in parameters.items())


def trials_text(status: Status) -> str:
    """Return the number of ended trials, and the budget if it counts trials."""
    return status.trials_text.replace("/", " of ")


def time_left(status: Status) -> str:
    """Return the time left and the rate of a running campaign. Both are unknown until the first
    result."""
    if status.phase != "running":
        return ""
    elapsed, left = status.budget.elapsed_seconds, status.budget.left_seconds
    if left is None or not elapsed:
        return "time left: known after the first result"
    rate = status.trials.done / elapsed  # in the unit that gives a readable number
    units = ((1.0, "s"), (60.0, "min"), (3600.0, "h"))
    seconds, unit = next((entry for entry in units if rate * entry[0] >= 1.0), units[-1])
    return f"about {duration(left)} left, {rate * seconds:.3g} trials/{unit}"


def progress(status: Status) -> str:
    """Return the algorithm's progress: refits in asynchronous mode, batches otherwise."""
    budget, model = status.budget, status.model
    steps = "" if budget.step_budget is None else f"step {budget.steps} of {budget.step_budget}, "
    if model.is_asynchronous:
        return f"{steps}{plural(model.refreshes, 'refit')}"
    return f"{steps}batch {model.batch} with {plural(model.batch_size, 'trial')}"


def _state(status: Status) -> str:
    if status.phase == "closed":
        return f"{status.outcome}: {status.reason.partition(chr(10))[0]}"
    if status.phase == "created":
        return "no session yet: one is starting, or `bbkb resume` starts one"
    if status.phase != "stopping":
        return status.activity or status.phase
    again = "again" if status.reason == StopReason.INTERRUPTED else "twice"
    verb = "ends" if status.trials.in_flight == 1 else "end"
    first = f"{plural(status.trials.in_flight, 'running evaluation')} {verb} first; Ctrl-C {again} stops at once"
    return f"stopping ({status.reason}): {first if status.trials.in_flight else status.activity}"


def _best(status: Status) -> Iterator[Fact]:
    best = status.best
    if best.value is None:
        yield Fact("best value", "no value yet")
        return
    yield Fact("best value", best.text, best.origin)
    yield Fact("parameters", assignments(best.parameters))
    if (recommended := best.recommended) is not None:
        is_best = recommended.parameters == best.parameters
        why = "it also has the best value" if is_best else "a best single value may be noise"
        yield Fact("recommended", str(recommended), why)
        if not is_best:
            yield Fact("its parameters", assignments(recommended.parameters))
    if status.model.exact:
        yield Fact("noise", "none", status.model.exact)
    if status.model.last_gain is not None:
        gain = status.model.possible_gain
        more = f"at most {rounded(gain, 3)} more" if gain is not None and gain > 0.0 else "no more"
        yield Fact(
            "last gain",
            f"{plural(status.model.last_gain, 'result')} ago",
            "" if gain is None else f"the model expects {more}",
        )


def goal_facts(goals: GoalsStatus | None) -> Iterator[Fact]:
    """Yield front and hypervolume, and the share of feasible results."""
    if goals is None:
        return
    if len(goals.objectives) > 1:
        volume = "" if goals.hypervolume is None else f"hypervolume {goals.hypervolume:.6g}"
        yield Fact("front", plural(goals.front, "trial"), volume)
    if goals.constraints and goals.feasible is not None:
        yield Fact("feasible", f"{goals.feasible:.0%} of the results", ", ".join(goals.constraints))


def as_arguments(parameters: Mapping[str, object]) -> str:
    """Return a configuration as arguments of a command, quoted for a shell."""
    parts: list[str] = []
    for name, value in parameters.items():
        text = json.dumps(value) if isinstance(value, list | tuple | dict) else str(value)
        # one argument if it looks like an option
        parts += [f"--{name}={text}"] if text.startswith("-") else [f"--{name}", text]
    return shlex.join(parts)
