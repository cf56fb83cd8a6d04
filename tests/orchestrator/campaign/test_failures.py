"""Tests of grouping failures by message."""

from orchestrator.campaign.failures import MOST_GROUPS, FailureGroups
from orchestrator.history.rows import AttemptRow


def failed(trial: int, message: str, kind: str = "error", attempt: int = 1) -> AttemptRow:
    return AttemptRow(trial, attempt, 0.0, 1.0, "w", kind, message)


def test_failure_group_joins_messages_that_differ_in_numbers() -> None:
    groups = FailureGroups(failed(trial, f"ValueError: dropout 0.{trial} too large\nmore") for trial in range(7))
    (group,) = groups.newest_first()
    assert (group.count, list(group.trials)) == (7, [2, 3, 4, 5, 6])
    assert group.summary == "ValueError: dropout 0.6 too large"


def test_failure_group_counts_attempts_and_names_a_trial_once() -> None:
    (group,) = FailureGroups(failed(3, "no", attempt=number) for number in (1, 2, 3)).newest_first()
    assert (group.count, list(group.trials)) == (3, [3])


def test_failure_groups_differ_by_kind_and_message_newest_first() -> None:
    groups = FailureGroups([failed(0, "a"), failed(1, "b"), failed(2, "a", "timeout"), failed(3, "a")])
    assert [(group.kind, group.summary) for group in groups.newest_first()] == [
        ("error", "a"),
        ("timeout", "a"),
        ("error", "b"),
    ]


def test_failure_groups_are_bounded() -> None:
    words = [f"{chr(97 + number % 26)}{chr(97 + number // 26)}" for number in range(2 * MOST_GROUPS)]
    groups = FailureGroups(failed(number, word) for number, word in enumerate(words))
    assert [group.summary for group in groups.newest_first()] == words[: MOST_GROUPS - 1 : -1]
