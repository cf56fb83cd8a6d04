"""Problems of other suites: COCO's functions, networks of LCBench, learners of RandomBot, and spaces
of choices and conditions."""

from typing import Any

import numpy as np
import pytest

from benchmarks.curves.problems import CurveProblem
from benchmarks.peers import bbob
from benchmarks.peers.methods.catalogue import is_applicable, make_method
from benchmarks.peers.methods.conditions import existing
from benchmarks.peers.methods.uniform import Uniform
from benchmarks.peers.mixed import FAILURE, NAMES, Mixed
from benchmarks.peers.problems import Evaluation
from benchmarks.peers.rbv2 import SPACES, TASKS, Learner, Surrogate
from benchmarks.peers.search import search
from benchmarks.peers.settings import PROBLEMS, SETS, make_problem, problems
from benchmarks.peers.summary import group_of
from benchmarks.peers.trainings import Training
from objectives.datasets import DataSource
from objectives.parameters import Choice, Range, Space
from objectives.sampling import make_candidates
from objectives.space import SearchSpace
from orchestrator.errors import UserError

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("function", range(1, bbob.FUNCTIONS + 1))
def test_the_best_place_of_a_bbob_function_has_no_regret_and_no_other_has_less(function: int) -> None:
    pytest.importorskip("cocoex")
    problem = bbob.Bbob(function, 2, 3)
    regrets = [problem.evaluate({"x0": x, "x1": y}, RNG).regret for x, y in RNG.uniform(-5, 5, (200, 2)).tolist()]
    assert min(regrets) >= 0.0
    assert np.median(regrets) == pytest.approx(1.0, rel=0.5)


def test_a_seed_is_another_instance_of_a_bbob_function() -> None:
    pytest.importorskip("cocoex")
    point = {"x0": 1.0, "x1": 2.0}
    values = [bbob.Bbob(1, 2, seed).evaluate(point, RNG).reward for seed in range(bbob.INSTANCES + 1)]
    assert len(set(values)) == bbob.INSTANCES
    assert values[0] == values[-1]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("seed", range(5))
def test_only_the_best_level_reaches_the_best_value(name: str, seed: int) -> None:
    problem = Mixed(name, seed)
    candidates = make_candidates(problem.space, 4096, seed=seed)
    points = [candidates.parameters(arm) for arm in range(len(candidates))]
    evaluations = [problem.evaluate(point, RNG) for point in points]
    choice = next(iter(problem.space))
    others = [
        evaluation.regret
        for evaluation, point in zip(evaluations, points, strict=True)
        if problem.levels[str(point[choice])].peak < 1.0 and evaluation.reward is not None
    ]
    best = [
        evaluation.regret
        for evaluation, point in zip(evaluations, points, strict=True)
        if problem.levels[str(point[choice])].peak == 1.0
    ]
    assert 0.0 <= min(best) < min(others)
    assert min(others) > 0.15
    succeeded = [evaluation.regret for evaluation in evaluations if evaluation.reward is not None]
    assert np.median(succeeded) == pytest.approx(1.0, abs=0.3)


def test_one_level_of_failcat_always_fails() -> None:
    problem = Mixed("failcat", 0)
    failing = next(kind for kind, level in problem.levels.items() if level.fails)
    outcome = problem.evaluate({"kind": failing, "x": 0.5, "y": 0.5}, RNG)
    assert (outcome.reward, outcome.regret) == (None, FAILURE)


@pytest.mark.parametrize("method", ["bbkb", "tpe", "random"])
@pytest.mark.parametrize("name", ["failcat", "deep"])
@pytest.mark.filterwarnings("ignore")  # Optuna's own
def test_methods_search_spaces_with_conditions_and_failures(name: str, method: str) -> None:
    if method == "tpe":
        pytest.importorskip("optuna")
    problem = Mixed(name, 1)
    record = search(problem, make_method(method, problem, 0, 20, {}), 3, 20, 0, (name, method))
    assert len(record.regrets) == 20
    assert FAILURE in record.regrets or name == "deep"
    assert np.isfinite(record.recommended).all()


def test_a_parameter_exists_where_its_condition_holds() -> None:
    space: Space = {
        "a": Choice(("x", "y")),
        "b": Range(0.0, 1.0, when={"a": "x"}),
        "c": Range(0.0, 1.0, when={"a": "y"}),
    }
    assert existing(space, {"a": "y", "b": 0.1, "c": 0.2}) == {"a": "y", "c": 0.2}


def test_suites_are_named_and_not_part_of_all() -> None:
    assert len(problems("bbob")) == bbob.FUNCTIONS * len(bbob.DIMENSIONS)
    assert problems("bbob-f3-d5,mixed")[0] == "bbob-f3-d5"
    assert not set(PROBLEMS) & {*SETS["bbob"], *SETS["lcbench"], *SETS["mixed"]}
    with pytest.raises(UserError, match=r"or of what bbob, lcbench, rbv2, mixed, .* stand for"):
        problems("bbob-f30-d5")
    problem = make_problem("optimisers", 0, DataSource())
    assert problem.group == group_of("optimisers")
    assert not is_applicable("cma-es", problem)


def test_a_training_is_the_end_of_its_learning_curve() -> None:
    curves = CurveProblem(
        name="lcbench-1",
        family="lcbench",
        space={"x": Range(0.0, 1.0)},
        arms=None,
        steps=(1, 2),
        costs=(1, 1),
        whole_cost=2,
        curve=lambda point: np.array([0.1, float(str(point["x"]))]),
        durations=lambda point: np.ones(2),
        best=1.0,
        median=0.5,
    )
    assert Training(curves).evaluate({"x": 0.75}, RNG) == Evaluation(0.75, 0.75, 0.5)


class SurrogateSession:
    """Stands for an onnxruntime session: the accuracy is subsample − |log10 eta + 1|/10, and half of
    it with another booster than gbtree."""

    def run(self, outputs: None, inputs: dict[str, np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
        numbers, choices = inputs["x_cont"], inputs["x_cat"]
        assert (numbers.shape[1], choices.shape[1]) == (14, 3)
        assert (choices[:, 0] == 7).all()
        assert (numbers[:, 12:] == (1.0, 10.0)).all()  # all data, ten repetitions
        is_linear, is_dart = choices[:, 1] == 0, choices[:, 1] == 2
        assert ((numbers[:, 1] == 0.0) == is_linear).all()  # eta
        assert (is_dart | (numbers[:, 10:12] == 0.0).all(axis=1)).all()  # rate_drop and skip_drop
        eta = np.where(is_linear, 1.0, numbers[:, 1])
        accuracy = numbers[:, 5] - np.abs(np.log10(eta) + 1.0) / 10.0
        return [np.stack([np.where(choices[:, 1] == 1, accuracy, 0.5 * accuracy), np.full(len(eta), 99.0)], axis=1)]


def test_a_learner_is_evaluated_by_the_inputs_that_its_surrogate_was_trained_with() -> None:
    boosters = {"gblinear": 0, "gbtree": 1, "dart": 2, "#na#": 3}
    imputes = {"impute.mean": 0, "impute.median": 1, "impute.hist": 2, "#na#": 3}
    codes = {"task_id": {TASKS[0]: 7}, "booster": boosters, "num.impute.selected.cpo": imputes}
    problem = Learner(Surrogate(SurrogateSession(), codes, SPACES["rbv2_xgboost"]), TASKS[0])
    candidates = make_candidates(problem.space, 512, "random", 3)
    outcomes = [problem.evaluate(candidates.parameters(row), RNG) for row in range(len(candidates))]
    best, median = problem.surrogate.optimum(TASKS[0])
    assert best == pytest.approx(1.0, abs=0.01)
    assert 0.0 < median < 0.5
    assert min(outcome.regret for outcome in outcomes) >= -0.01
    assert all(outcome.regret == pytest.approx((best - outcome.expected) / (best - median)) for outcome in outcomes)


@pytest.mark.parametrize("learner", SPACES)
def test_random_search_draws_configurations_of_a_learners_space(learner: str) -> None:
    problem = Learner(Surrogate(None, {}, SPACES[learner]), TASKS[0])
    drawing, space = Uniform(problem, 0), SearchSpace(dict(problem.space))
    points = [drawing.ask(number) for number in range(50)]
    assert [space.candidate(point).parameters(0).keys() for point in points] == [point.keys() for point in points]
    assert len({len(point) for point in points}) == (3 if learner == "rbv2_xgboost" else 1)
