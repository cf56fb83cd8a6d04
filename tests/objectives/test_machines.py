"""Tests of objectives/machines.py, and of its use by functions and commands."""

from dataclasses import replace
from pathlib import Path

import pytest

from bbkb.objectives.command import ShellCommand
from bbkb.objectives.external import call_with
from bbkb.objectives.machines import Machine
from bbkb.objectives.objective import Evaluation, InvalidValueError, Parameters, Report
from bbkb.objectives.with_metrics import WithMetrics
from bbkb.workers.evaluate import evaluate
from bbkb.workers.messages import Attempt, Limits, TrialFailed, TrialSucceeded
from bbkb.workers.reporting import Reports

TWO = Machine(0, 2, ("10.0.0.1", "10.0.0.2"), 29500)
SECOND = replace(TWO, rank=1)


def test_url_is_the_address_and_port_of_rank_0() -> None:
    assert SECOND.url == "tcp://10.0.0.1:29500"
    assert replace(TWO, addresses=("fd00::1", "fd00::2")).url == "tcp://[fd00::1]:29500"


def test_command_gets_placeholders_environment_and_hostfile() -> None:
    command = ShellCommand(
        'echo "$MASTER_ADDR $MASTER_PORT $NODE_RANK $RANK $WORLD_SIZE" $(cat $BBKB_HOSTFILE) >&2; '
        "echo {machine} {machines} {address} {port} >&2; exit 3"
    )
    command.check(["x"])
    with pytest.raises(RuntimeError) as failed:
        command.evaluate({}, 0, Reports(machine=SECOND))
    assert "10.0.0.1 29500 1 1 2 10.0.0.1 10.0.0.2" in str(failed.value)
    assert "1 2 10.0.0.1 29500" in str(failed.value)


def test_command_on_one_machine_has_index_0_of_1() -> None:
    assert ShellCommand("echo {machine}{machines}").evaluate({}, 0, Reports()).value == 1.0
    assert ShellCommand("echo {machine}").evaluate({"machine": 7}, 0, Reports()).value == 7.0, "a parameter comes first"


def test_function_gets_its_machine_and_only_the_first_one_returns_a_value() -> None:
    def objective(x: float, machine: Machine) -> float | None:
        return x + machine.count if machine.rank == 0 else None

    assert call_with(objective, {"x": 1.0}, 0, Reports(machine=TWO), "objective").value == 3.0
    assert call_with(objective, {"x": 1.0}, 0, Reports(), "objective").value == 2.0
    call_with(objective, {"x": 1.0}, 0, Reports(machine=SECOND), "objective")
    with pytest.raises(InvalidValueError):
        call_with(lambda x: None, {"x": 1.0}, 0, Reports(machine=TWO), "objective")


class NoMetrics:
    """Returns a value without metrics."""

    def evaluate(self, parameters: Parameters, seed: int, report: Report) -> Evaluation:
        return Evaluation(1.0)


def test_metrics_are_required_only_on_the_first_machine() -> None:
    objective = WithMetrics(NoMetrics(), "value", (("accuracy", "constraints.0"),))
    attempt = Attempt(0, 0, {}, 0)
    assert isinstance(evaluate(objective, attempt, Limits(), machine=SECOND), TrialSucceeded)
    assert isinstance(evaluate(objective, attempt, Limits(), machine=TWO), TrialFailed)


def test_hostfile_has_one_address_on_each_line(tmp_path: Path) -> None:
    assert TWO.write_hostfile(tmp_path).read_text() == "10.0.0.1\n10.0.0.2\n"
