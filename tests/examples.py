"""The number of examples of property tests: `make test` uses fewer than `make test-all`."""

import os

_SHARE = 4  # a quick run tries one in this number of examples


def examples(count: int) -> int:
    """Return the number of examples, for `hypothesis.settings(max_examples=...)`, of a property
    that is slow to try.

    Args:
        count: examples of a complete run.

    """
    return max(5, count // _SHARE) if os.environ.get("BBKB_TEST_QUICK") else count
