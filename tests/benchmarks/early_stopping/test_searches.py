"""The benchmark's clock and its cache of learning curves, on curves that are made up."""

from pathlib import Path

import pytest

from benchmarks.curves.simulate import Start
from benchmarks.early_stopping import curves as curves_module
from benchmarks.early_stopping.curves import EPOCHS, LearningCurve, load_curves
from benchmarks.early_stopping.peers import search
from objectives.parameters import Ordered
from orchestrator.errors import UserError


def curve(rate: float, final: float, seconds: float = 28.0) -> LearningCurve:
    accuracies = tuple(final * step / EPOCHS for step in range(1, EPOCHS + 1))
    return LearningCurve(configuration={"rate": rate}, accuracies=accuracies, seconds=seconds)


CURVES = [curve(0.1, 0.5), curve(0.2, 0.9)]


class InTurn:
    """Asks for the poor configuration `poor` times, then for the good one; may stop the poor ones
    at a step."""

    watches = True

    def __init__(self, poor: int, stops_at: int | None) -> None:
        self.poor, self.stops_at = poor, stops_at
        self.begun, self.finished = 0, list[int]()

    def suggest(self) -> Start:
        self.begun += 1
        return Start(CURVES[self.begun > self.poor].configuration)

    def report(self, trial: int, step: int, value: float) -> bool:
        return trial >= self.poor or step != self.stops_at

    def end(self, trial: int, value: float) -> None:
        self.finished.append(trial)

    def recommend(self) -> None:
        return None


def test_without_stopping_every_training_takes_its_seconds() -> None:
    tuner = InTurn(poor=2, stops_at=None)
    record = search(tuner, CURVES, target=0.9, workers=1)
    assert record.seconds == pytest.approx(3 * 28.0)
    assert (record.trials, record.is_found) == (3, True)
    assert tuner.finished == [0, 1, 2]


def test_a_stopped_training_frees_its_worker_at_the_step() -> None:
    tuner = InTurn(poor=2, stops_at=3)
    record = search(tuner, CURVES, target=0.9, workers=1)
    assert record.seconds == pytest.approx(2 * 3.0 + 28.0)
    assert tuner.finished == [2]


def test_workers_run_beside_each_other() -> None:
    assert search(InTurn(poor=2, stops_at=None), CURVES, target=0.9, workers=3).seconds == pytest.approx(28.0)


def test_a_target_that_is_never_reached_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.early_stopping.peers.MOST_EVALUATIONS", 5)
    record = search(InTurn(poor=9, stops_at=None), CURVES, target=0.9, workers=1)
    assert (record.trials, record.is_found) == (5, False)


def test_curves_are_trained_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    training = curves_module.softmax()
    few = curves_module.Training(training.options, {**training.grid, "learning_rate": Ordered((0.1,))})
    monkeypatch.setattr(curves_module, "TRAININGS", {"few": lambda: few})
    monkeypatch.setattr(
        curves_module, "train", lambda objective, configuration, seed: LearningCurve(
            configuration=configuration, accuracies=(0.5,) * EPOCHS, seconds=float(seed)
        )
    )  # fmt: skip
    messages = list[str]()
    first = load_curves("few", tmp_path, messages.append)
    assert len(messages) == len(first) == 36
    assert load_curves("few", tmp_path, messages.append) == first
    assert len(messages) == 36


def test_a_line_that_is_no_curve_is_named(tmp_path: Path) -> None:
    (tmp_path / "softmax.jsonl").write_text("nothing\n")
    with pytest.raises(UserError, match=r"softmax\.jsonl:1 is not a learning curve.*delete that line"):
        load_curves("softmax", tmp_path, lambda line: None)
