"""`bbkb.workers.messages`: outcomes that a worker of an older version has pickled."""

from collections.abc import Iterator
from dataclasses import MISSING, Field, fields

import pytest

from bbkb.workers.messages import Failure, FailureKind, Outcome, Stopped, Success

_OUTCOMES = (
    Success(3, 2, 0.5, 0.0, 1.0, "w", {"size": 4.0}, output="epoch 1"),
    Failure(3, 2, FailureKind.ERROR, "no such file", 0.0, 1.0, "w", output="epoch 1"),
    Stopped(trial=3, attempt=2, value=0.5, step=1, started=0.0, finished=1.0, worker="w", output="epoch 1"),
)


@pytest.mark.parametrize("outcome", _OUTCOMES)
def test_outcome_of_an_older_version_has_the_defaults_of_newer_fields(outcome: Outcome) -> None:
    newer = list(_fields_with_default(outcome))
    assert newer
    for count in range(len(newer) + 1):
        sent = [getattr(outcome, each.name) for each in fields(outcome)]
        read = object.__new__(type(outcome))
        read.__setstate__(sent[: len(sent) - count])
        for each in newer[len(newer) - count :]:
            default = each.default if each.default_factory is MISSING else each.default_factory()
            assert getattr(read, each.name) == default
        for each in fields(outcome)[: len(sent) - count]:
            assert getattr(read, each.name) == getattr(outcome, each.name)


def _fields_with_default(outcome: Outcome) -> Iterator[Field[object]]:
    for each in fields(outcome):
        if each.default is not MISSING or each.default_factory is not MISSING:
            yield each
