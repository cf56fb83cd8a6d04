"""`bbkb.orchestrator.bandit.arrays`: A bounded cache of values that are expensive to compute."""

from hypothesis import given
from hypothesis import strategies as st

from bbkb.orchestrator.bandit.arrays import Recent


@given(st.lists(st.integers(0, 5)), st.integers(1, 4))
def test_values_used_last_are_cached_and_others_recomputed(keys: list[int], capacity: int) -> None:
    recent: Recent[int, int] = Recent(capacity)
    used: list[int] = []
    for key in keys:
        made_keys: list[int] = []

        def make(key: int = key, made_keys: list[int] = made_keys) -> int:
            made_keys.append(key)
            return 10 * key

        assert recent.get(key, make) == 10 * key
        assert bool(made_keys) == (key not in list(dict.fromkeys(reversed(used)))[:capacity])
        used.append(key)


def test_removed_value_is_no_longer_cached() -> None:
    recent: Recent[str, int] = Recent(2)
    recent.put("one", 1)
    assert recent.take("one") == 1
    assert recent.take("one") is None
