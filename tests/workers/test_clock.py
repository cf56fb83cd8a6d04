"""`bbkb.workers.clock`: Wall-clock time that passes steadily, also when the machine's clock is changed
while a process runs.
"""

import time

import pytest

from bbkb.workers.clock import SteadyClock


def test_steady_clock_ignores_changes_of_the_machines_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, before = SteadyClock(), time.time()
    monkeypatch.setattr(time, "time", lambda: before + 86_400.0)
    assert abs(clock() - before) < 60.0
    first = clock()
    assert clock() >= first
