"""The report says how many promises were broken, and names each."""

from pathlib import Path

from benchmarks.chaos.accounting import Account
from benchmarks.chaos.campaign import Plan
from benchmarks.chaos.course import Result
from benchmarks.chaos.reporting import keep, line, read_earlier, report


def result(kind: str, lost: int = 0, *complaints: str) -> Result:
    account = Account(
        lost=lost,
        twice=0,
        broken=(),
        results=40,
        executions=42,
        evaluation_seconds=30.0,
        repeated={"worker": 2},
        repeated_seconds=1.5,
        recoveries={"coordinator": (2.0, 4.0)},
        strikes={"coordinator": 2, "driver": 1},
        kills={"coordinator": 2, "driver": 1},
        failures={"worker lost": 2},
        set_aside=0,
        sessions=3,
    )
    return Result(Plan(kind, 40, 6, seed=1), account, complaints, False, 60.0, attaches=1, resumes=0)


def test_kills_recoveries_and_repetitions_of_all_campaigns_are_added_up() -> None:
    rows = report([result("actor"), result("task")]).splitlines()
    assert "| SIGKILLs | 6 |" in rows
    assert "| **finished results lost** | **0** |" in rows
    assert "| the central actor | 4 | 4 | 3.00 | 4.00 |" in rows
    assert "| the driver, or `bbkb attach` | 2 | 0 |  |  |" in rows
    assert "| actor | 42 | 2 worker | 1.5 | 30 |" in rows
    assert rows[-1] == "Every promise was kept."


def test_a_broken_promise_is_named() -> None:
    broken = result("actor", 1, "finished and not recorded: trial 3")
    text = report([result("task"), broken])
    assert "| **finished results lost** | **1** |" in text
    assert "| campaigns with a complaint | 1 |" in text
    assert text.endswith("actor seed 1: finished and not recorded: trial 3")
    assert "1 lost" in line(broken)
    assert line(broken).endswith("1 complaints")


def test_accounts_that_were_kept_in_a_folder_are_read_back(tmp_path: Path) -> None:
    assert read_earlier(tmp_path) == []
    done = [result("actor"), result("task", 1, "lost: \n, and a line end")]
    for one in done:
        keep(tmp_path, one)
    assert read_earlier(tmp_path) == done
