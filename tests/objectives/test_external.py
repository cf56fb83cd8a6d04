"""`bbkb.objectives.external`: importable functions and shell commands, and the trial of a training."""

import functools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bbkb.objectives.external import PythonCallable, Trial, call_with, check_signature, nested
from bbkb.objectives.objective import (
    NAME_CHARACTERS,
    EvaluationStopped,
    InvalidValueError,
    Machine,
    ObjectiveError,
    Report,
    folder_of,
)
from bbkb.objectives.returned import ReportLines
from bbkb.workers import messages
from bbkb.workers.evaluate import Reports
from tests.reported import reported

MODULE = """
def plain(x, scale=1):
    return x * scale

def seeded(x, seed):
    return {"value": x + seed, "seed": seed}

def reporting(x, report):
    report(x / 2, step=4)
    return x

def anything(**parameters):
    return len(parameters)

def picky(x, /, y):
    return x

def worded(x):
    return "high"

def failing(x):
    raise ZeroDivisionError("of the user's own")

def required(learning_rate):
    return learning_rate

def required_and_more(learning_rate, **more):
    return learning_rate

constant = 3
"""


Named = Callable[[str], PythonCallable]


@pytest.fixture
def callable_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Named:
    """Builds a PythonCallable of a function in MODULE, found by its search path only."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "users_module", raising=False)
    (tmp_path / "users_module.py").write_text(MODULE)
    return lambda name: PythonCallable(f"users_module:{name}", (str(tmp_path),))


@pytest.mark.parametrize(
    ("name", "parameters", "value"),
    [
        ("plain", {"x": 3, "scale": 2}, 6),
        ("seeded", {"x": 1}, 42),
        ("seeded", {"x": 1, "seed": 5}, 6),  # a parameter called seed is the parameter
        ("anything", {"a": 1, "b": 2}, 2),  # variadic keywords receive only the parameters
    ],
)
def test_parameters_are_keywords_and_the_seed_is_passed_if_the_signature_names_it(
    callable_named: Named, silent: Report, name: str, parameters: dict[str, int], value: int
) -> None:
    assert callable_named(name).evaluate(parameters, 41, silent).value == value


def test_report_is_passed_and_a_returned_mapping_has_metrics(callable_named: Named, silent: Report) -> None:
    assert dict(callable_named("seeded").evaluate({"x": 1}, 41, silent).metrics) == {"seed": 41}
    reports: list[Any] = []
    callable_named("reporting").evaluate({"x": 1}, 0, lambda value, step=None, **_: reports.append((value, step)))
    assert reports == [(0.5, 4)]


def test_exception_of_the_function_passes_through(callable_named: Named, silent: Report) -> None:
    with pytest.raises(ZeroDivisionError, match="of the user's own"):
        callable_named("failing").evaluate({"x": 1}, 0, silent)
    with pytest.raises(InvalidValueError, match="users_module:worded must return a number, got str 'high'"):
        callable_named("worded").evaluate({"x": 1}, 0, silent)


def test_preparing_imports_the_module_and_raises_its_errors(callable_named: Named, tmp_path: Path) -> None:
    callable_named("plain").prepare()
    assert "users_module" in sys.modules
    (tmp_path / "broken_module.py").write_text("1 / 0")
    with pytest.raises(ObjectiveError, match="division by zero"):
        PythonCallable("broken_module:plain", (str(tmp_path),)).prepare()


@pytest.mark.parametrize(
    ("name", "parameters"),
    [("plain", ["x"]), ("plain", ["x", "scale"]), ("seeded", ["x"]), ("reporting", ["x"]), ("anything", ["a", "b"])],
)
def test_function_that_fits_the_space_passes_the_check(
    callable_named: Named, silent: Report, name: str, parameters: list[str]
) -> None:
    objective = callable_named(name)
    objective.check(parameters)
    objective.evaluate(dict.fromkeys(parameters, 1), 0, silent)  # and the check was right


@pytest.mark.parametrize(
    ("name", "parameters", "message"),
    [
        ("plain", ["x", "scael"], "must accept parameter 'scael' of the space, .* x, scale; did you mean 'scale'"),
        ("plain", [], "needs 'x'; add it to the space or give it a default"),
        ("picky", ["x", "y"], r"must accept parameter 'x' .*; add it, or \*\*parameters"),
        ("plian", ["x"], "has no 'plian'; did you mean 'plain'"),
        ("plain", ["y", "sacle", "x"], "must accept parameter 'sacle'"),
        ("seeded", ["seed", "xx"], "must accept parameter 'xx'"),
        ("required", ["lerning_rate"], "must accept parameter 'lerning_rate'.*did you mean 'learning_rate'"),
        ("required_and_more", ["lerning_rate"], "needs 'learning_rate'; .*; did you mean 'lerning_rate'"),
        ("constant", ["x"], "must name a function, 'users_module:constant' is int"),
    ],
)
def test_function_that_does_not_fit_is_rejected_early(
    callable_named: Named, name: str, parameters: list[str], message: str
) -> None:
    with pytest.raises(ObjectiveError, match=message):
        callable_named(name).check(parameters)


def _configured(config: dict[str, Any], seed: int, report: Report) -> float:
    return float(config["optimizer"]["lr"] + config["n"])


def test_function_with_the_argument_config_gets_all_parameters_nested(silent: Report) -> None:
    parameters = {"optimizer.lr": 0.5, "optimizer.name": "sgd", "n": 2}
    check_signature(_configured, parameters, "f", conditional={"n"})
    assert call_with(_configured, parameters, 0, silent, "f").value == 2.5
    assert nested(parameters) == {"optimizer": {"lr": 0.5, "name": "sgd"}, "n": 2}
    assert call_with(lambda config: config, {"config": 3}, 0, silent, "f").value == 3
    with pytest.raises(ObjectiveError, match=r"f gets 'n\.x' in config\['n'\], which is a parameter itself"):
        check_signature(_configured, ["n", "n.x"], "f")
    with pytest.raises(ObjectiveError, match="f needs 'data'"):
        check_signature(lambda config, data: 0.0, ["x"], "f")


async def _returns_a_coroutine(x: float) -> float:
    return x


def _yields(x: float) -> Iterator[float]:
    yield x


class _AsynchronousCall:
    async def __call__(self, x: float) -> float:
        return x


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (_returns_a_coroutine, r"f must be an ordinary function, not an async one; .* asyncio\.run"),
        (functools.partial(_returns_a_coroutine), "must be an ordinary function"),
        (_AsynchronousCall(), "must be an ordinary function"),
        (_AsynchronousCall().__call__, "must be an ordinary function"),
        (dict, "f must be a function, not a class"),
        (_yields, r"must return its value, it has a yield; .* report\(value, step\)"),
    ],
)
def test_function_that_returns_no_value_when_called_is_rejected_early(
    function: Callable[..., object], message: str
) -> None:
    with pytest.raises(ObjectiveError, match=message):
        check_signature(function, ["x"], "f")


def test_builtin_without_a_signature_is_accepted() -> None:
    PythonCallable("builtins:max").check(["x"])


def writes(text: str) -> Callable[[str], int]:
    return lambda path: Path(path).write_text(text)


def own_report(value: object, step: int | None = None, **metrics: float) -> None: ...


def test_trial_reports_and_learns_that_the_campaign_stops_it(tmp_path: Path) -> None:
    reports = Reports(lambda reported: reported is not None and reported.step == 2)
    trial = Trial(reports, tmp_path)
    assert not trial.report({"loss": 0.5}, "loss", 1)
    assert trial.report(
        {"loss": 0.25, "rate": 3, "step": 9, "name": "none", "n" * (NAME_CHARACTERS + 1): 1.0, "": 1.0, "self": 2},
        "loss",
        2,
    )
    assert reports.points() == (reported(1, 0.5), reported(2, 0.25, rate=3.0, self=2.0))


@pytest.mark.parametrize("rank", [0, 1])
def test_trial_on_several_machines_reports_only_on_the_first(rank: int) -> None:
    machine = Machine(rank, 2, ("10.0.0.1", "10.0.0.2"), 29500)
    assert Trial(Reports(machine=machine)).is_first == (rank == 0)


def test_missing_metric_is_rejected_with_the_existing_ones() -> None:
    with pytest.raises(KeyError, match=r"metric 'acuracy' must be one that the training computes: loss, accuracy"):
        Trial(Reports()).report({"loss": 0.5, "accuracy": 0.1}, "acuracy", 1)


def test_trial_without_a_report_prints_lines_of_a_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Trial().report({"loss": 0.5}, "loss", 1)
    assert capsys.readouterr().out == "BBKB_REPORT 1 0.5\n"
    monkeypatch.setenv("BBKB_RESULT", "result.json")
    print("a progress bar", end="")
    Trial().report({"loss": 0.1 + 0.2, "val accuracy": 0.5, "k=1": 2.0}, "loss", 7)
    reports = Reports()
    ReportLines(reports, 0).take(capsys.readouterr().out.encode())
    assert reports.points() == (messages.Report(0, 1, 7, {"value": 0.1 + 0.2, "val_accuracy": 0.5, "k=1": 2.0}),)


def test_folder_comes_from_the_argument_the_report_or_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BBKB_FOLDER", raising=False)
    assert Trial().folder is None
    Trial().save(pytest.fail, 1)
    monkeypatch.setenv("BBKB_FOLDER", str(tmp_path / "environment"))
    assert Trial().folder == tmp_path / "environment"
    assert Trial(Reports()).folder is None  # that of an outer command is not this trial's
    assert Trial(Reports(folder=tmp_path / "report"), tmp_path / "argument").folder == tmp_path / "argument"
    monkeypatch.setattr(own_report, "folder", tmp_path / "report", raising=False)  # its only attribute
    for report in (Reports(folder=tmp_path / "report"), own_report):
        assert Trial(report).folder == folder_of(report) == tmp_path / "report"


def test_newest_complete_checkpoint_is_found_and_the_previous_one_removed(tmp_path: Path) -> None:
    trial = Trial(folder=tmp_path)
    assert (trial.checkpoint, trial.step) == (None, 0)
    for step in (9, 10):
        trial.save(writes(str(step)), step, ".json")
    (tmp_path / "draft-11.json").write_text("incomplete")
    (tmp_path / "output-1.txt").write_text("printed")
    reopened = Trial(folder=tmp_path)
    assert (reopened.checkpoint, reopened.step) == (tmp_path / "step-10.json", 10)
    assert (tmp_path / "step-10.json").read_text() == "10"
    assert {path.name for path in tmp_path.iterdir()} == {"step-10.json", "draft-11.json", "output-1.txt"}


def test_drafts_of_an_attempt_that_was_killed_are_removed_with_the_next_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "draft-4.json").write_text("incomplete")
    (tmp_path / "draft-5").mkdir()
    (tmp_path / "draft-5" / "weights").write_text("incomplete")
    Trial(folder=tmp_path).save(writes("complete"), 6, ".json")
    assert [path.name for path in tmp_path.iterdir()] == ["step-6.json"]


def test_checkpoint_may_be_a_folder_and_replaces_one_of_the_same_step(tmp_path: Path) -> None:
    trial = Trial(folder=tmp_path)
    for content in ("first", "second"):
        draft = tmp_path / "saved"
        draft.mkdir()
        (draft / "weights").write_text(content)
        trial.keep(draft, 1)
        trial = Trial(folder=tmp_path)
    assert (tmp_path / "step-1" / "weights").read_text() == "second"
    trial.save(writes("third"), 2)
    assert [path.name for path in tmp_path.iterdir()] == ["step-2"]


def test_exception_of_another_kind_is_not_a_stop() -> None:
    def stop(reported: messages.Report | None) -> bool:
        raise EvaluationStopped

    assert Trial(Reports(stop)).report({"loss": 0.0}, "loss", 1)
    with pytest.raises(ValueError, match="could not convert"):
        Trial(Reports()).report({"loss": "none"}, "loss", 1)
