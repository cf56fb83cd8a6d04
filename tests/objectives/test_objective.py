"""The contract of all objectives in the table (a new one is tested as soon as it is listed), and the
machines of an evaluation.
"""

import dataclasses
import math
import pickle
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import TypeAdapter

from bbkb.objectives.command import ShellCommand
from bbkb.objectives.external import call_with
from bbkb.objectives.objective import (
    Candidates,
    Evaluation,
    HasCandidates,
    HasOptimum,
    InvalidValueError,
    Machine,
    Objective,
    Parameters,
    Report,
)
from bbkb.objectives.parameters import Range
from bbkb.objectives.reference import OBJECTIVES, DataSource, ObjectiveOptions, find_objective
from bbkb.objectives.returned import WithMetrics
from bbkb.objectives.sampling import make_candidates
from bbkb.orchestrator.settings.mistakes import RefusalError
from bbkb.orchestrator.settings.options import build
from bbkb.workers.evaluate import Reports, evaluate
from bbkb.workers.messages import Attempt, Limits, TrialFailed, TrialSucceeded
from tests.objectives.recorded_files import write_tables

HEADERS = {
    "abalone/abalone.csv": "sex,length,diameter,height,whole,shucked,viscera,shell,rings",
    "cadata/cal_housing.csv.gz": "longitude,latitude,age,rooms,bedrooms,population,households,income,value",
}
# what an objective needs besides the installation; its own tests cover the message when it is
# missing
EXTRAS = {"mnist_cnn": "torch", "nas_cell": "torch"}
# objectives whose defaults take long or do not exist
OPTIONS = {
    "mnist_cnn": {"epochs": 1, "train_size": 200},
    "sklearn": {"estimator": "sklearn.svm.SVC", "data": "iris"},
    "nas_cell": {"epochs": 1, "train_size": 100, "validation_size": 100, "vertices": 5},
}
HERE = [name for name in OBJECTIVES if name not in EXTRAS or find_spec(EXTRAS[name])]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Small stand-ins of the tables, so that the contract is the same on every machine."""
    import gzip

    root = tmp_path_factory.mktemp("data")
    for name, header in HEADERS.items():
        numbers = np.random.default_rng(0).random((40, 9)).round(3)
        text = "\n".join([header, *(",".join(map(str, row)) for row in numbers)])
        (root / name).parent.mkdir()
        (root / name).write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    write_tables(root)
    return root


@pytest.fixture(params=HERE)
def options(request: pytest.FixtureRequest) -> ObjectiveOptions:
    return TypeAdapter(find_objective(request.param)).validate_python(OPTIONS.get(request.param, {}))


@pytest.fixture
def objective(options: ObjectiveOptions, folder: Path) -> Objective:
    return options.load(DataSource(folder))


@pytest.fixture
def candidates(options: ObjectiveOptions, objective: Objective) -> Candidates:
    space = options.default_space()
    if space == {}:  # the campaign file gives it
        space = {"C": Range(0.1, 10.0, log=True)}
    if space is None:
        assert isinstance(objective, HasCandidates)
        return objective.candidates()
    return make_candidates(space, 16)


def some_arms(candidates: Candidates) -> range:
    """Return arms to evaluate: all of a small table, the first ones if an evaluation trains."""
    return range(min(len(candidates), 40 if len(candidates) <= 40 else 4))


def without_seconds(evaluation: Evaluation) -> Evaluation:
    """Return the evaluation without its duration."""
    metrics = {name: metric for name, metric in evaluation.metrics.items() if not name.endswith("seconds")}
    return dataclasses.replace(evaluation, metrics=metrics)


def test_options_are_a_frozen_dataclass_that_rejects_unknown_keys(options: Any) -> None:
    kind = type(options)
    assert dataclasses.is_dataclass(kind)
    assert hash(options) == hash(dataclasses.replace(options))
    with pytest.raises(RefusalError, match="no_such_option"):
        build(kind, {"no_such_option": 1})


def test_bundled_objective_has_candidates_or_a_space(options: ObjectiveOptions, objective: Objective) -> None:
    assert isinstance(objective, Objective)
    assert (options.default_space() is None) == isinstance(objective, HasCandidates)


def test_value_is_finite_for_every_candidate(objective: Objective, candidates: Candidates, silent: Report) -> None:
    for arm in some_arms(candidates):
        evaluation = objective.evaluate(candidates.parameters(arm), 0, silent)
        assert type(evaluation.value) is float
        assert math.isfinite(evaluation.value)
        assert all(type(metric) is float and math.isfinite(metric) for metric in evaluation.metrics.values())


def test_parameters_and_seed_determine_the_evaluation_here_and_on_a_worker(
    objective: Objective, candidates: Candidates, silent: Report
) -> None:
    there = pickle.loads(pickle.dumps(objective))
    for arm, seed in ((0, 0), (0, 1), (len(candidates) - 1, 2**63)):
        parameters = candidates.parameters(arm)
        first, again, elsewhere = (
            without_seconds(instance.evaluate(parameters, seed, silent)) for instance in (objective, objective, there)
        )
        assert first == again == elsewhere


def test_candidates_are_equal_after_pickling(candidates: Candidates) -> None:
    there = pickle.loads(pickle.dumps(candidates))
    np.testing.assert_array_equal(there.features, candidates.features)
    assert not there.features.flags.writeable
    assert [there.parameters(arm) for arm in (0, len(there) - 1)] == [
        candidates.parameters(arm) for arm in (0, len(candidates) - 1)
    ]
    assert (there.repeats, there.conditional, there.remark) == (
        candidates.repeats,
        candidates.conditional,
        candidates.remark,
    )


def test_evaluating_changes_nothing(objective: Objective, candidates: Candidates, silent: Report) -> None:
    before, parameters = pickle.dumps(objective), candidates.parameters(0)
    parameters_before = dict(parameters)
    objective.evaluate(parameters, 0, silent)
    assert pickle.dumps(objective) == before
    assert parameters == parameters_before


def test_noise_free_values_are_never_beyond_the_optimum(
    objective: Objective, candidates: Candidates, silent: Report
) -> None:
    evaluations = [objective.evaluate(candidates.parameters(arm), 0, silent) for arm in some_arms(candidates)]
    noise_free = [evaluation.metrics["noise_free"] for evaluation in evaluations if "noise_free" in evaluation.metrics]
    assert bool(noise_free) == isinstance(objective, HasOptimum)
    if isinstance(objective, HasOptimum):
        assert objective.optimum(maximize=False) <= min(noise_free)
        assert max(noise_free) <= objective.optimum(maximize=True)
    if isinstance(objective, HasOptimum) and isinstance(objective, HasCandidates):
        assert objective.optimum(maximize=True) == max(noise_free)


TWO = Machine(0, 2, ("10.0.0.1", "10.0.0.2"), 29500)
SECOND = replace(TWO, rank=1)


def test_url_is_the_address_and_port_of_rank_0() -> None:
    assert SECOND.url == "tcp://10.0.0.1:29500"
    assert replace(TWO, addresses=("fd00::1", "fd00::2")).url == "tcp://[fd00::1]:29500"


def test_command_gets_placeholders_environment_and_hostfile() -> None:
    command = ShellCommand(
        'echo "$MASTER_ADDR $MASTER_PORT $NODE_RANK $RANK $WORLD_SIZE" >&2; '
        "echo {machine} {machines} {address} {port} >&2; cat $BBKB_HOSTFILE >&2; exit 3"
    )
    command.check(["x"])
    with pytest.raises(RuntimeError) as failed:
        command.evaluate({}, 0, Reports(machine=SECOND))
    assert "10.0.0.1 29500 1 1 2\n" in str(failed.value)
    assert "1 2 10.0.0.1 29500\n10.0.0.1\n10.0.0.2" in str(failed.value)


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
