"""Tests of grouping failures by message."""

from collections.abc import Iterable

from bbkb.orchestrator.campaign.failures import MOST_GROUPS, FailureGroups


def groups_of(failed: Iterable[tuple[int, str, str]]) -> FailureGroups:
    groups = FailureGroups()
    for trial, kind, message in failed:
        groups.add(trial, kind, message)
    return groups


def test_failure_group_joins_messages_that_differ_in_numbers() -> None:
    groups = groups_of((trial, "error", f"ValueError: dropout 0.{trial} too large\nmore") for trial in range(7))
    (group,) = groups.newest_first()
    assert (group.count, list(group.trials)) == (7, [2, 3, 4, 5, 6])
    assert group.summary == "ValueError: dropout 0.6 too large"


def test_failure_group_counts_attempts_and_names_a_trial_once() -> None:
    (group,) = groups_of([(3, "error", "no")] * 3).newest_first()
    assert (group.count, list(group.trials)) == (3, [3])


def test_failure_groups_differ_by_kind_and_message_newest_first() -> None:
    groups = groups_of([(0, "error", "a"), (1, "error", "b"), (2, "timeout", "a"), (3, "error", "a")])
    assert [(group.kind, group.summary) for group in groups.newest_first()] == [
        ("error", "a"),
        ("timeout", "a"),
        ("error", "b"),
    ]


def test_failure_groups_are_bounded() -> None:
    words = [f"{chr(97 + number % 26)}{chr(97 + number // 26)}" for number in range(2 * MOST_GROUPS)]
    groups = groups_of((number, "error", word) for number, word in enumerate(words))
    assert [group.summary for group in groups.newest_first()] == words[: MOST_GROUPS - 1 : -1]
