"""Evaluations for the tests of `bbkb.workers.evaluate` and `bbkb.workers.limits`."""

import pickle
from collections.abc import Callable
from typing import Any

from bbkb.objectives.objective import Evaluation, Parameters, Report
from bbkb.workers import messages
from bbkb.workers.evaluate import MESSAGE_CHARACTERS, evaluate
from bbkb.workers.messages import Attempt, Limits, Outcome, TrialFailed

UNLIMITED = Limits()


class Doing:
    """An objective whose action the test chooses."""

    def __init__(self, action: Callable[[Parameters, int, Report], Any]) -> None:
        self.action = action

    def evaluate(self, parameters: Parameters, seed: int, report: Report) -> Evaluation:
        result: Evaluation = self.action(parameters, seed, report)
        return result


class Published(list[messages.Report | None]):
    """A `publish` that remembers the reports, and stops no trial."""

    def __call__(self, reported: messages.Report | None) -> bool:
        self.append(reported)
        return False


def outcome_of(action: Callable[[Parameters, int, Report], Any], limits: Limits = UNLIMITED, **options: Any) -> Outcome:
    return evaluate(Doing(action), Attempt(7, 3, {"x": 2.0}, seed=11, attempt=4), limits, **options)


def outcome_of_value(value: Any, metrics: Any = None) -> Outcome:
    return outcome_of(lambda *_: Evaluation(value, {} if metrics is None else metrics))


def outcome_of_raising(error: BaseException, **options: Any) -> Outcome:
    def action(*_: Any) -> None:
        raise error

    return outcome_of(action, **options)


def failure_of(outcome: Outcome) -> TrialFailed:
    assert isinstance(outcome, TrialFailed), outcome
    assert (outcome.trial, outcome.attempt) == (7, 4)
    assert len(outcome.message) <= MESSAGE_CHARACTERS
    outcome.message.encode("utf-8")
    pickle.loads(pickle.dumps(outcome))
    return outcome
