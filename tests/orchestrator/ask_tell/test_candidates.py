"""`bbkb.orchestrator.ask_tell.candidates`: `CandidateOptimizer`: ask and tell rows of an array, without
a campaign.
"""

import doctest
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest

from bbkb import CandidateOptimizer, Optimizer, strategies
from bbkb.orchestrator.ask_tell import candidates
from bbkb.orchestrator.bandit.arms import Arms
from bbkb.orchestrator.bandit.kernels import RBF, Matern52
from bbkb.orchestrator.bandit.strategies import STRATEGIES
from tests.examples import spread
from tests.orchestrator.ask_tell.searches import reloaded, search_of, view_of, with_options

X = np.linspace(0, 1, 60)[:, None]


def target(arms: np.ndarray) -> np.ndarray:
    result: np.ndarray = np.exp(-30 * (X[arms, 0] - 0.7) ** 2)
    return result


def test_documented_example_runs() -> None:
    assert doctest.testmod(candidates) == doctest.TestResults(failed=0, attempted=7)


@pytest.mark.parametrize(
    "strategy",
    [
        pytest.param(name, marks=pytest.mark.thorough if name == "optuna" else [])
        for name in STRATEGIES
        if name != "pbt"
    ],
)
def test_asking_and_telling_finds_the_best_candidate(strategy: str) -> None:
    search = CandidateOptimizer(X, strategy, seed=1)
    # strategies with the calibrated model end when all candidates are evaluated and repeats were equal
    while len(search.trials) < 100 and len(arms := search.ask(limit=10)):
        search.tell(arms, target(arms))
    best = int(search.best.parameters["candidate"])
    assert abs(X[best, 0] - 0.7) < 0.03
    assert search.best.value == pytest.approx(target(np.array([best]))[0])


def test_seed_gives_the_same_arms_however_asks_are_split() -> None:
    runs = []
    for piece in (None, 3):
        search = with_options(X, seed=5, ratio_threshold=2, regularization=0.01)  # ask(None) ends at 60 arms
        run: list[list[int]] = []
        for _ in range(5):
            batch = search.ask(piece)
            while piece and (next_arms := search.ask(piece)).size:
                batch = np.concatenate((batch, next_arms))
            run.append(batch.tolist())
            search.tell(batch, target(batch))
        runs.append(run)
    assert runs[0] == runs[1]


def test_optimizer_waits_for_rewards_and_forgets_learned_pulls() -> None:
    search = with_options(X, preset="paper", warm_start={"name": "random", "pulls": 3})
    arms = search.ask()
    assert arms.dtype == np.intp
    assert len(arms) == 3
    assert search.ask().tolist() == []
    search.tell(arms[[2]], [0.5])  # in any order and grouping
    search.fail(arms[[0]])
    assert search.pending.tolist() == [arms[1]]
    search.tell(arms[1], 0.25)
    assert search.pending.tolist() == []
    assert arms[0] not in search.ask(60)


def test_existing_results_are_learned() -> None:
    search = with_options(X, kernel={"name": "rbf", "lengthscale": 0.2}, regularization=1e-4)
    search.tell(np.arange(60), target(np.arange(60)))
    assert search.best.parameters["candidate"] == np.argmax(target(np.arange(60)))
    np.testing.assert_allclose(search.mean, target(np.arange(60)), atol=0.05)
    assert len(search.dictionary) > 0
    assert (search.ucb >= search.mean).all()
    assert (search.variance >= 0).all()


def test_strategy_may_be_an_object_or_a_function_that_makes_it() -> None:
    kernel = Matern52()
    made = strategies.GPUCB(kernel=kernel)
    assert search_of(CandidateOptimizer(X, made)).strategy == made
    by_function = search_of(CandidateOptimizer(X, strategies.GPUCB)).strategy
    assert by_function == search_of(CandidateOptimizer(X, "gp_ucb")).strategy


Wrong: Any = CandidateOptimizer  # for calls that its signature forbids


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda: Wrong(np.zeros(5)), r"candidates must be an \(A, d\) array with A, d >= 1, got shape \(5,\)"),
        (lambda: Wrong([[0.0], [np.nan]]), r"candidates must be finite, row 1 is \[nan\]"),
        (lambda: Wrong(X, "bbbk"), r"strategy must be one of .*\bbbkb\b.*, got 'bbbk'; did you mean 'bbkb'"),
        (lambda: Wrong(X, coverage=0.1), "coverage is not an argument of CandidateOptimizer; did you mean 'strategy'"),
        (lambda: Wrong(X, existing=([1], [None])), "a reward must be a finite number, got None"),
        (lambda: Wrong(X, existing=([], [])), "existing results must be at least one"),
        (lambda: Wrong(X, existing=([1], [np.inf])), "a reward must be a finite number, got inf"),
        (lambda: Wrong(X, existing=([1], [1.0], [2.0])), r"be a pair \(indices, rewards\), got 3 items"),
        (lambda: Wrong(X, existing={1: 2.0}), r"existing must be a pair \(indices, rewards\), got a dict"),
        (lambda: Wrong({"x": [0.0, 1.0]}), r"candidates must be an \(A, d\) array of numbers.*got \{'x'.*give space="),
        (lambda: Wrong([["a"]]), r"candidates must be an \(A, d\) array of numbers"),
        (lambda: Wrong(pandas.DataFrame({"x": ["a", "b"]})), r"pandas\.get_dummies\(…, dtype=float\) turns its texts"),
        (lambda: Wrong(X, seed=None), "seed must be a whole number >= 0, got None"),
        (lambda: Wrong(X, seed=-1), "seed must be a whole number >= 0, got -1"),
        (lambda: Wrong(X).scores({"a": 1}), r"rewards must be numbers \(n,\), got \{'a': 1\}"),
        (lambda: Wrong(X).tell([1], ["0.5"]), "a reward must be a finite number, got '0.5'"),
        (lambda: Wrong(X).tell([1], [10**400]), "a reward must be a finite number, got 1000"),
        (lambda: Wrong(X).ask(True), "limit must be a whole number >= 1, got True"),
        (lambda: Wrong(X).ask(0), "limit must be >= 1, got 0"),
        (lambda: Wrong(X).tell([1, 2], [[0.5], [0.5]]), r"rewards must be \(n,\), .* got shape \(2, 1\)"),
        (lambda: Wrong(X).tell([1], [1j]), "a reward must be a finite number, got 1j; call fail for a failed"),
        (lambda: Wrong(X).tell([1], {1: 0.5}), r"rewards must be numbers \(n,\) .* got a dict"),
        (lambda: Wrong(X).best, "best needs at least one reward"),
        (lambda: Wrong(X).tell([60], [0.5]), "an index must be >= 0 and < 60, the number of candidates; got 60"),
        (lambda: Wrong(X).tell([0.5], [0.5]), "indices must be integers"),
        (lambda: Wrong(X).tell([1, 2], [0.5]), "one reward for each index, got 1 rewards for 2 indices"),
        (lambda: Wrong(X).tell([1], [np.nan]), "a reward must be a finite number, got nan; call fail"),
    ],
)
def test_mistakes_are_named_with_their_remedy(act: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        act()


def test_rejected_tell_changes_nothing() -> None:
    search = CandidateOptimizer(X)
    arms = search.ask()
    with pytest.raises(ValueError, match="finite"):
        search.tell(arms, [np.inf] * len(arms))
    assert search.pending.tolist() == arms.tolist()
    assert view_of(search).round == 0


def test_optimizer_imports_numpy_and_scipy_only() -> None:
    code = (
        "import sys; from bbkb import CandidateOptimizer; "
        "heavy = {'ray', 'pydantic', 'sqlalchemy', 'sklearn', 'typer', 'yaml', 'plotly'} & set(sys.modules); "
        "print(heavy or 'light')"
    )
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (finished.stdout, finished.stderr) == ("light\n", "")


@pytest.mark.parametrize("strategy", ["bbkb", "bkb", "gp_ucb", "gp_bucb", "expected_improvement", "uniform"])
def test_existing_results_replace_the_warm_start(strategy: str) -> None:
    arms = np.arange(0, 60, 2)
    options = {} if strategy == "uniform" else {"kernel": {"name": "rbf", "lengthscale": 0.2}, "regularization": 1e-3}
    search = with_options(X, strategy, seed=3, existing=(arms, target(arms)), **options)
    assert search.best.parameters["candidate"] == 42
    assert view_of(search).pulls.total == 30
    asked = search.ask(1)
    assert strategy == "uniform" or abs(X[asked[0], 0] - 0.7) < 0.1
    again = with_options(X, strategy, seed=3, existing=(arms, target(arms)), **options)
    assert again.ask(1).tolist() == asked.tolist()


def test_candidates_that_are_evaluated_elsewhere_are_pending_until_their_rewards_are_known() -> None:
    x = np.linspace(0.0, 1.0, 50)[:, None]
    optimizer, other = CandidateOptimizer(x, seed=1), CandidateOptimizer(x, seed=1)
    started = [0, 10, 20, 30, 40, 49] * 3
    optimizer.tell(started, np.sin(3.0 * x[started, 0]))
    other.tell(started, np.sin(3.0 * x[started, 0]))
    optimizer.mark_pending(other.ask(1))
    assert optimizer.ask(1).tolist() == other.ask(1).tolist()  # as if it had asked for that one itself
    with pytest.raises(ValueError, match="an index must be >= 0 and < 50"):
        optimizer.mark_pending([50])


@pytest.mark.parametrize(
    ("strategy", "existing"),
    spread([name for name in STRATEGIES if name != "pbt"], [None, ([3, 50, 3], [0.1, 0.2, 0.3])]),
)
def test_saved_optimizer_continues_exactly(strategy: str, existing: Any, tmp_path: Path) -> None:
    search = CandidateOptimizer(X, strategy, seed=2, existing=existing)
    for _ in range(6):
        arms = search.ask(3)
        search.fail([arm for arm in arms if arm == arms[0] == 7])
        search.tell(
            [arm for arm in arms if not arm == arms[0] == 7], [target(arm) for arm in arms if not arm == arms[0] == 7]
        )
    search.mark_pending([11])
    search.tell([20], [0.125])
    loaded = reloaded(search, tmp_path)
    assert loaded.trials == search.trials
    assert (dict(loaded.trials[-1].parameters), loaded.trials[-1].value) == ({"candidate": 20}, 0.125)
    assert loaded.pending.tolist() == search.pending.tolist()
    assert loaded.best == search.best
    np.testing.assert_array_equal(loaded.ucb, search.ucb)
    for _ in range(3):
        asked = search.ask(3)
        assert loaded.ask(3).tolist() == asked.tolist()
        for optimizer in (search, loaded):
            optimizer.tell(asked, target(asked))


def test_failed_candidate_and_layout_survive_a_save(tmp_path: Path) -> None:
    search = with_options(Arms.of(X, repeats=False, is_sequence=True), warm_start={"name": "spread", "pulls": 4})
    search.fail([0])
    search.tell([1, 2, 3], [0.1, 0.2, 0.3])
    loaded = reloaded(search, tmp_path)
    assert sorted(loaded.ask(100).tolist()) == list(range(4, 60))
    assert (loaded.trials[0].status, loaded.trials[0].value) == ("failed", None)


def test_file_of_the_other_class_is_rejected_with_the_call_to_write(tmp_path: Path) -> None:
    Optimizer({"x": {"low": 0.0, "high": 1.0}}, "minimize").save(tmp_path / "space.json")
    CandidateOptimizer(X).save(tmp_path / "array.json")
    with pytest.raises(ValueError, match=r"it was written by Optimizer; write Optimizer\.load\(path\)"):
        CandidateOptimizer.load(tmp_path / "space.json")
    with pytest.raises(ValueError, match=r"it was written by CandidateOptimizer; write CandidateOptimizer\.load\(path"):
        Optimizer.load(tmp_path / "array.json")


class Own(RBF):
    """A kernel of the caller's own."""


def test_unsavable_optimizer_leaves_no_file(tmp_path: Path) -> None:
    search = with_options(X, preset="paper", kernel=Own(0.5))
    with pytest.raises(ValueError, match=r"cannot be written into a file: "):
        search.save(tmp_path / "search.json")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"format": 1}', '{"format": 2}'])
@pytest.mark.parametrize("loader", [CandidateOptimizer, Optimizer])
def test_foreign_file_is_rejected(content: str, loader: Any, tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text(content)
    with pytest.raises(ValueError, match=rf"other\.json is not a saved {loader.__name__}"):
        loader.load(tmp_path / "other.json")


@pytest.mark.parametrize("path", ["missing.json", "x" * 300, "."])
def test_file_that_cannot_be_loaded_is_named_with_the_reason(path: str) -> None:
    for loader in (CandidateOptimizer, Optimizer):
        with pytest.raises(ValueError, match=r"path must be a file that save wrote, got '.*: (No such|File name|Is a)"):
            loader.load(path)


@pytest.mark.parametrize("by_tell", [False, True])
def test_copied_rows_of_existing_data_do_not_make_rewards_look_deterministic(tmp_path: Path, by_tell: bool) -> None:
    arms, rewards = [3, 3, 3, 7, 7, 7], [0.5, 0.5, 0.5, 0.25, 0.25, 0.25]
    search = CandidateOptimizer(X, seed=1) if by_tell else CandidateOptimizer(X, seed=1, existing=(arms, rewards))
    if by_tell:
        search.tell(arms, rewards)
    search.save(tmp_path / "search.json")
    for optimizer in (search, CandidateOptimizer.load(tmp_path / "search.json")):
        optimizer.ask(1)
        assert view_of(optimizer).pulls.counts[3] == 3
        assert not view_of(optimizer).pulls.looks_deterministic
        for _ in range(5):
            optimizer.mark_pending([3])
            optimizer.tell([3], [0.5])
        optimizer.ask(1)
        assert view_of(optimizer).pulls.looks_deterministic
