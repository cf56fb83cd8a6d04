"""Unknown and misplaced arguments of the public functions and classes."""

from collections.abc import Callable
from pathlib import Path

import pytest

from bbkb import BbkbError, CandidateOptimizer, Choice, Constraint, Objective, Optimizer, Range, load, strategies, tune
from bbkb.objectives.errors import did_you_mean

SPACE = {"x": Range(0.0, 1.0)}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: tune(abs, SPACE, n_trials=20), "n_trials is not an argument of tune; did you mean 'evaluations'"),  # type: ignore[call-arg]
        (lambda: tune(abs, SPACE, 20), "tune takes only objective, space by position.*20, such as evaluations"),  # type: ignore[call-arg]
        (lambda: Optimizer(SPACE, "minimize", sedd=1), "sedd is not an argument of Optimizer; did you mean 'seed'"),  # type: ignore[call-arg]
        (lambda: CandidateOptimizer([[0.0]], sedd=1), "sedd is not an argument of CandidateOptimizer; did you"),  # type: ignore[call-arg]
        (lambda: Optimizer(SPACE, "minimize").ask(n=2), "n is not an argument of Optimizer.ask; did you mean 'limit'"),  # type: ignore[call-arg]
        (lambda: strategies.BBKB(covrage=0.1), "covrage is not an argument of BBKB; did you mean 'coverage'"),  # type: ignore[call-arg]
        (lambda: Range(0, 1, loog=True), "loog is not an argument of Range; did you mean 'log'"),  # type: ignore[call-arg]
        (lambda: Choice([1, 2], zzz=1), "its arguments are choices, weights"),  # type: ignore[arg-type, call-arg]
        (lambda: Objective("a", mode="minimize"), "did you mean 'direction'"),  # type: ignore[call-arg]
        (lambda: Constraint("a", max=3), "did you mean 'at_most'"),  # type: ignore[call-arg]
        (lambda: load("runs/a", foo=1), "foo is not an argument of load; its arguments are folder"),  # type: ignore[call-arg]
    ],
)
def test_wrong_argument_is_rejected_with_the_correct_name(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def test_traceback_of_a_mistake_ends_near_the_users_line_and_has_no_cause(tmp_path: Path) -> None:
    mistakes: list[Callable[[], object]] = [
        lambda: Range(1, 0),
        lambda: tune(abs, SPACE, evaluations=-1, direction="minimize"),
        lambda: tune(
            lambda x: x,
            SPACE,
            evaluations=1,
            direction="minimize",
            executor="inline",
            known_results=[{"table": str(tmp_path / "missing.csv")}],
        ),
    ]
    for mistake in mistakes:
        with pytest.raises((ValueError, BbkbError)) as raised:
            mistake()
        last = raised.traceback[-2]
        assert (str(last.path), last.name) == (__file__, "<lambda>")
        assert raised.value.__cause__ is None
        assert raised.value.__suppress_context__ or raised.value.__context__ is None


def test_mistake_in_imported_code_keeps_its_cause(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("1 / 0\n")
    with pytest.raises(BbkbError) as raised:
        tune({"callable": f"{tmp_path}/broken.py:f"}, SPACE, evaluations=1, direction="minimize", executor="inline")
    assert isinstance(raised.value.__cause__, ZeroDivisionError)


def test_did_you_mean_prefers_the_same_letters_and_is_empty_if_nothing_is_similar() -> None:
    assert did_you_mean("lgo", ["low", "high", "log"]) == "; did you mean 'log'?"
    assert did_you_mean("lerning_rate", ["learning_rate", "l2"]) == "; did you mean 'learning_rate'?"
    assert did_you_mean("zzz", ["learning_rate", "l2"]) == ""
