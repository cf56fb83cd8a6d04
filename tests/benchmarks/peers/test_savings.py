"""What the rules of `budget.stop_when` would save in a search."""

from benchmarks.peers.functions import Function
from benchmarks.peers.savings import RULES, stops


def test_more_patience_saves_less_and_a_search_that_is_not_stopped_loses_nothing() -> None:
    savings = stops(Function("branin", 0), 2, 90, 0)
    assert savings.keys() == RULES.keys()
    assert all(0.0 <= saved < 1.0 for saved, _ in savings.values())
    assert all(added == 0.0 for saved, added in savings.values() if saved == 0.0)
    for gain in ("0.001", "0.01"):
        assert savings[f"no gain of {gain} in 32"][0] >= savings[f"no gain of {gain} in 64"][0]
    for below in ("noise", "0.1", "0.02"):
        saved = [savings[f"expected gain below {below}, patience {patience}"][0] for patience in (1, 2, 4)]
        assert saved == sorted(saved, reverse=True)
    assert max(saved for saved, _ in savings.values()) > 0.0
