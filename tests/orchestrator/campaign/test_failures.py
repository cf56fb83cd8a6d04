"""Failures by cause."""

from bbkb.orchestrator.campaign.failures import MOST_CAUSES, Causes, FailureCause, with_failure


def test_cause_joins_messages_that_differ_in_numbers_and_keeps_the_first() -> None:
    causes: Causes = ()
    for trial in range(7):
        causes = with_failure(causes, trial, "error", f"ValueError: dropout 0.{trial} too large\nmore")
    causes = with_failure(causes, 8, "timeout", "ValueError: dropout 0.1 too large")
    first = FailureCause("error", "ValueError: dropout 0.0 too large\nmore", 0, attempts=7)
    assert causes[0] == first
    assert first.summary == "ValueError: dropout 0.0 too large"
    assert [cause.kind for cause in causes] == ["error", "timeout"]


def test_rarest_cause_leaves_if_there_are_too_many() -> None:
    causes: Causes = ()
    words = [f"{chr(97 + number % 26)}{chr(97 + number // 26)}" for number in range(2 * MOST_CAUSES)]
    for trial, word in enumerate(["usual", "usual", *words]):
        causes = with_failure(causes, trial, "error", word)
    assert len(causes) == MOST_CAUSES
    assert causes[0] == FailureCause("error", "usual", 0, attempts=2)
    assert causes[-1].message == words[-1]
