"""The mark: it finds all processes that have it, and no others."""

import os
import subprocess
import sys

import pytest

from benchmarks.chaos.processes import Mark, age_of, environment_of, program_of, title_of, wait_for


def start_sleep(mark: Mark, **more: str) -> "subprocess.Popen[bytes]":
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], env=mark.environment(**more))
    wait_for(lambda: mark.is_on(process.pid), 10.0, "it must begin")
    return process


def test_only_what_carries_the_mark_is_found_and_killed() -> None:
    mark, other = Mark(), Mark()
    ours, theirs = start_sleep(mark, ROLE="a"), start_sleep(other)
    try:
        assert mark.pids() == [ours.pid] == mark.pids(ROLE="a")
        assert mark.pids(ROLE="b") == []
        assert program_of(ours.pid).startswith("python")
        assert "time.sleep(60)" in title_of(ours.pid)
        assert 0.0 < age_of(ours.pid) < age_of(os.getpid())
        assert not mark.kill(theirs.pid)
        mark.end_all()
        assert ours.wait(200) < 0
        assert theirs.poll() is None
    finally:
        other.end_all()
        theirs.wait(200)
        ours.kill()
        ours.wait(200)


def test_a_process_that_has_ended_is_not_found_before_its_exit_code_is_read() -> None:
    mark = Mark()
    ours = start_sleep(mark)
    assert mark.kill(ours.pid)
    wait_for(lambda: not mark.is_on(ours.pid), 10.0, "it must end")
    assert (mark.pids(), mark.kill(ours.pid), environment_of(ours.pid)) == ([], False, {})
    ours.wait(200)
    assert (title_of(ours.pid), program_of(ours.pid), age_of(ours.pid)) == ("", "", 0.0)


def test_waiting_ends_with_an_answer_or_with_what_was_waited_for() -> None:
    answers = iter([None, 0, 5])
    assert wait_for(lambda: next(answers), 10.0, "an answer must come") == 5
    with pytest.raises(TimeoutError, match=r"an answer must come: not within 0\.05 s"):
        wait_for(lambda: None, 0.05, "an answer must come")
