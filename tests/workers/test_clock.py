"""`workers.clock`: Wall-clock time that passes steadily, also when the machine's clock is changed
while a process runs.
"""

import time

import pytest

from workers.clock import SteadyClock


def test_clock_that_is_set_while_a_process_runs_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, before = SteadyClock(), time.time()
    monkeypatch.setattr(time, "time", lambda: before + 86_400.0)
    assert abs(clock() - before) < 60.0
    first = clock()
    assert clock() >= first
