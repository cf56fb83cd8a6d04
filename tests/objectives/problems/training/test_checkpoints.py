"""Trainings that are stopped and continue from their checkpoints: bit for bit as without a stop."""

import pickle
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bbkb.objectives.objective import RANK_VARIABLES, Evaluation, EvaluationStopped, Objective, Report, TrainsInSteps
from bbkb.objectives.problems.cells import CONVOLUTION, POOLING
from bbkb.objectives.problems.training.cnn import ConvolutionalNetwork
from bbkb.objectives.problems.training.nas_cell import CELL, CellNetwork
from bbkb.objectives.problems.training.softmax import SoftmaxRegression
from bbkb.objectives.reference import DataSource
from bbkb.workers import messages
from bbkb.workers.evaluate import Reports

EPOCHS = 5


@dataclass(frozen=True)
class Case:
    options: Any
    parameters: dict[str, Any]
    file: str  # the last checkpoint


SOFTMAX = Case(
    SoftmaxRegression(epochs=EPOCHS, dataset="digits", train_size=300),
    {"learning_rate": 0.3, "batch_size": 32, "dropout": 0.1, "l2": 1e-4},
    f"step-{EPOCHS}.npz",
)
CNN = Case(
    ConvolutionalNetwork(epochs=EPOCHS, dataset="digits", train_size=200),
    {"learning_rate": 0.03, "batch_size": 16, "first_kernel": 3, "second_kernel": 3, "hidden": 10},
    f"step-{EPOCHS}.pt",
)
CELLS = Case(
    CellNetwork(epochs=EPOCHS, dataset="digits", train_size=200, validation_size=100, batch_size=30),
    {CELL: f"0-1 1-2 1-3 2-3 {CONVOLUTION} {POOLING}"},
    f"step-{EPOCHS}.pt",
)
WITH_TORCH = {"mnist_cnn": CNN, "nas_cell": CELLS} if find_spec("torch") is not None else {}
CASES = {"mnist_logistic_regression": SOFTMAX, **WITH_TORCH}


@pytest.fixture(params=CASES, scope="module")
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]


@pytest.fixture(scope="module")
def objective(case: Case) -> Objective:
    loaded: Objective = case.options.load(DataSource())
    return loaded


@pytest.fixture
def evaluate(case: Case, objective: Objective) -> Callable[[Report], Evaluation]:
    return lambda report: timeless(objective.evaluate(case.parameters, 7, report))


@pytest.fixture(autouse=True)
def disturbed() -> None:
    """Draw from the process's generator, as another evaluation between two attempts does."""
    if WITH_TORCH:
        import torch

        torch.rand(3)


def timeless(evaluation: Evaluation) -> Evaluation:
    return replace(evaluation, metrics={k: v for k, v in evaluation.metrics.items() if k != "seconds"})


def pause(evaluate: Callable[[Report], Evaluation], folder: Path, step: int) -> tuple[messages.Report, ...]:
    reports = Reports(folder=folder, step_limit=step)
    with pytest.raises(EvaluationStopped):
        evaluate(reports)
    return reports.points()


def content(path: Path) -> Any:
    """Return the content of a checkpoint without the duration of the training."""
    if path.suffix == ".npz":
        with np.load(path) as arrays:
            return {name: array.tobytes() for name, array in arrays.items()}
    import torch

    state = torch.load(path, weights_only=True)
    del state["numbers"]["seconds"]
    return flat(state)


def flat(state: Any) -> Any:
    if isinstance(state, dict):
        return {name: flat(entry) for name, entry in state.items()}
    return state.numpy().tobytes() if hasattr(state, "numpy") else state


def test_paused_training_ends_bit_for_bit_as_without_a_pause(
    case: Case, evaluate: Callable[[Report], Evaluation], tmp_path: Path
) -> None:
    whole, paused = Reports(folder=tmp_path / "whole"), tmp_path / "paused"
    expected = evaluate(whole)
    assert [reported.step for reported in pause(evaluate, paused, 1)] == [1]
    assert [reported.step for reported in pause(evaluate, paused, 3)] == [1, 2, 3]  # the first one once more
    last = Reports(folder=paused)
    assert evaluate(last) == expected
    assert last.points() == whole.points()[2:]
    assert content(paused / case.file) == content(tmp_path / "whole" / case.file)
    assert [path.name for path in paused.iterdir()] == [case.file]  # the newest one only


def test_training_without_a_folder_saves_nothing_and_gives_the_same_value(
    evaluate: Callable[[Report], Evaluation], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This also holds inside a command whose own folder is not that of these trials."""
    monkeypatch.setenv("BBKB_FOLDER", str(tmp_path))
    plain: list[tuple[int | None, float]] = []
    evaluations = [evaluate(Reports()), evaluate(lambda value, step=None, **_: plain.append((step, value)))]
    assert list(tmp_path.iterdir()) == []
    last = evaluations[0].metrics.get("validation_accuracy", evaluations[0].value)
    assert [step for step, _ in plain] == list(range(1, EPOCHS + 1))
    assert plain[-1][1] == last, "the validation accuracy is reported after each epoch"
    kept = Reports(folder=tmp_path / "trial")
    assert [evaluate(kept)] * 2 == evaluations
    assert [(reported.step, reported.values["value"]) for reported in kept.points()] == plain


@pytest.mark.parametrize("variable", RANK_VARIABLES)
def test_rank_inherited_by_the_worker_does_not_disable_checkpoints(
    evaluate: Callable[[Report], Evaluation], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    """As in a worker of a Ray node that srun or mpirun has started."""
    monkeypatch.setenv(variable, "1")
    pause(evaluate, tmp_path, 3)
    assert [path.stem for path in tmp_path.iterdir()] == ["step-3"]


def test_training_whose_result_was_lost_is_not_repeated(
    evaluate: Callable[[Report], Evaluation], tmp_path: Path
) -> None:
    first, again = Reports(folder=tmp_path), Reports(folder=tmp_path)
    assert evaluate(first) == evaluate(again)
    assert again.points() == first.points()[-1:]


def _truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _flip(path: Path) -> None:
    """Change bits of the weights, which the checksums of the archive show."""
    whole = bytearray(path.read_bytes())
    for place in range(len(whole) // 3, len(whole) // 3 + 100):  # more than lies between two arrays
        whole[place] ^= 1
    path.write_bytes(bytes(whole))


def _replace_by_code(path: Path) -> None:
    path.write_bytes(pickle.dumps(_Touch(path.parent / "executed")))


class _Touch:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[[Path], None], tuple[Path]]:
        return Path.touch, (self.path,)


@pytest.mark.parametrize("damage", [_truncate, _empty, _flip, _replace_by_code])
def test_damaged_checkpoint_restarts_the_training_with_a_warning(
    case: Case, evaluate: Callable[[Report], Evaluation], tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    whole, last = Reports(), Reports(folder=tmp_path)
    expected = evaluate(whole)
    pause(evaluate, tmp_path, 3)
    damage(next(tmp_path.glob("step-3*")))
    with pytest.warns(UserWarning, match=r"restarts, because its checkpoint .*step-3.* cannot be read"):
        assert evaluate(last) == expected
    assert last.points() == whole.points()
    assert [path.name for path in tmp_path.iterdir()] == [case.file]


@pytest.mark.parametrize("error", [MemoryError(), PermissionError(13, "Permission denied"), OSError(5, "I/O error")])
def test_checkpoint_that_cannot_be_read_now_is_kept_and_read_by_the_next_attempt(
    evaluate: Callable[[Report], Evaluation], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    expected = evaluate(Reports())
    pause(evaluate, tmp_path, 3)

    def fail(*_: object, **__: object) -> None:
        raise error

    with monkeypatch.context() as broken:
        broken.setattr("numpy.load", fail)
        if WITH_TORCH:
            broken.setattr("torch.load", fail)
        with pytest.raises(type(error)):
            evaluate(Reports(folder=tmp_path))
    assert [path.stem for path in tmp_path.iterdir()] == ["step-3"]
    assert evaluate(Reports(folder=tmp_path)) == expected


@pytest.mark.parametrize(
    ("name", "part"),
    [(name, part) for name in WITH_TORCH for part in ("network", "optimizer", "random")]
    + [(name, "schedule") for name in WITH_TORCH if name == "nas_cell"],
)
def test_checkpoint_needs_each_part_of_its_state(name: str, part: str, tmp_path: Path) -> None:
    import torch

    case = CASES[name]
    objective = case.options.load(DataSource())

    def evaluate(report: Report) -> Evaluation:
        return timeless(objective.evaluate(case.parameters, 7, report))

    expected = evaluate(Reports())
    pause(evaluate, tmp_path / "early", 1)
    pause(evaluate, tmp_path / "late", 3)
    early, late = (torch.load(next((tmp_path / when).glob("step-*")), weights_only=True) for when in ("early", "late"))
    torch.save({**late, part: early[part]}, tmp_path / "late" / "step-3.pt")
    assert evaluate(Reports(folder=tmp_path / "late")) != expected


def test_training_has_the_last_step_of_its_epochs(objective: Objective) -> None:
    assert isinstance(objective, TrainsInSteps)
    assert objective.last_step == EPOCHS
