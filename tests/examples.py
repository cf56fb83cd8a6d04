"""The amount of tests: `make test` tries fewer examples and pairs than `make test-all`."""

import os
from collections.abc import Iterable

import pytest

_SHARE = 8  # a quick run tries one in this number of examples


def examples(count: int) -> int:
    """Return the number of examples, for `hypothesis.settings(max_examples=...)`, of a property
    that is slow to try.

    Args:
        count: examples of a complete run.

    """
    return max(4, count // _SHARE) if os.environ.get("BBKB_TEST_QUICK") else count


def spread(names: Iterable[object], others: Iterable[object]) -> list[object]:
    """Return all pairs, as values of two parameters. A quick run tries each of `names` with one of
    `others`, in turns."""
    kinds = list(others)
    return [
        pytest.param(name, kind, marks=[] if (number + shift) % len(kinds) == 0 else pytest.mark.thorough)
        for number, name in enumerate(names)
        for shift, kind in enumerate(kinds)
    ]
