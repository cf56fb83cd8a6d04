"""BBKB as a search algorithm of Ray Tune, with Ray Tune itself in a few tests."""

import math
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ray import cloudpickle, tune
from ray.tune.experiment import Trial
from ray.tune.schedulers import ASHAScheduler

from bbkb.objectives.objective import ObjectiveError
from bbkb.objectives.parameters import Choice, Range
from bbkb.objectives.space import SearchSpace
from bbkb.orchestrator.adapters.tune import Backlog, BBKBSearch, TuneSpace
from bbkb.orchestrator.ask_tell.space import Optimizer
from bbkb.orchestrator.bandit.results import TrialCurve
from bbkb.orchestrator.settings.imported import read_tune
from tests.orchestrator.ask_tell.searches import curves_of
from tests.present import present
from tests.ray_limits import NEEDS_PATH_WITHOUT_SPACES

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # Ray's workers cannot import this file

SPACE = {"x": tune.uniform(0.0, 1.0), "inner": {"kind": tune.choice(["a", "b"])}, "fixed": 3}


def search(**options: Any) -> BBKBSearch:
    return BBKBSearch(SPACE, metric="loss", mode="min", **{"backlog": 0, **options})


def value(config: dict[str, Any]) -> float:
    return float((config["x"] - 0.3) ** 2 + (config["inner"]["kind"] == "b"))


def backlog(searcher: BBKBSearch) -> Backlog:
    assert searcher._backlog is not None
    return searcher._backlog


def optimizer(searcher: BBKBSearch) -> Optimizer:
    return backlog(searcher)._optimizer


def drive(searcher: BBKBSearch, trials: int, first: int = 0) -> list[dict[str, Any]]:
    """Trials one after the other, as Tune would run them."""
    configs = []
    for number in range(first, first + trials):
        config = present(searcher.suggest(f"t{number}"))
        configs.append(config)
        searcher.on_trial_complete(f"t{number}", {"loss": value(config)})
    return configs


def test_space_of_tune_becomes_parameters_by_path() -> None:
    config = {
        "a": tune.loguniform(1e-3, 1.0),
        "b": {"n": tune.randint(2, 5), "m": tune.qrandint(2, 8, 2)},
        "c": tune.choice([1, "two"]),
        "d": 4,
        "q": tune.quniform(0.0, 1.0, 0.25),
    }
    space = TuneSpace.of(config)
    assert space.parameters == {
        "p0": Range(1e-3, 1.0, log=True),
        "p1": Range(2, 4, integer=True),
        "p2": Range(2, 8, integer=True, step=2),
        "p3": Choice((0, 1)),
        "p4": Range(0.0, 1.0, step=0.25),
    }
    configuration = {"p0": 0.1, "p1": 3, "p2": 8, "p3": 1, "p4": 0.5}
    written = {"a": 0.1, "b": {"n": 3, "m": 8}, "c": "two", "q": 0.5}
    assert space.config(configuration) == written
    assert space.configuration({**written, "d": 4}) == configuration


@given(count=st.integers(1, 30), step=st.integers(1, 4))
def test_values_drawn_by_tune_are_in_the_space(count: int, step: int) -> None:
    domains = {"n": tune.qrandint(0, count * step, step), "m": tune.randint(3, 3 + count), "x": tune.uniform(0, 1)}
    space = TuneSpace.of(domains)
    for _ in range(5):
        values = {name: domain.sample() for name, domain in domains.items()}
        SearchSpace(space.parameters).code_of(space.configuration(values))


def test_result_from_elsewhere_is_learned_unchanged() -> None:
    searcher = search()
    searcher.add_evaluated_point({"x": 0.31, "inner": {"kind": "a"}, "fixed": 3}, 0.5)
    best = optimizer(searcher).best
    assert (best.parameters, best.value) == ({"p0": 0.31, "p1": 0}, -0.5)
    with pytest.raises(ValueError, match="needs space, metric and mode before"):
        BBKBSearch().add_evaluated_point({}, 1.0)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"a": tune.grid_search([1, 2])}, "a must not be tune.grid_search"),
        ({"a": {"b": tune.randn(0, 1)}}, "b must be tune.uniform, .* or choice"),
        ({"a": tune.qrandn(0, 1, 0.5)}, "a must be tune.uniform"),
        ({"a": {"b": [1, {"c": tune.uniform(0, 1)}]}}, "a/b must not be a list with tune's domains"),
        ({"a": tune.sample_from(lambda spec: 1)}, "a must be tune.uniform"),
    ],
)
def test_space_that_cannot_be_searched_is_rejected(config: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        BBKBSearch(config, metric="loss", mode="min")


def test_search_concentrates_where_the_loss_is_small() -> None:
    configs = drive(search(), 40)
    late = [value(config) for config in configs[-10:]]
    assert sum(late) / 10 < sum(value(config) for config in configs[:10]) / 10


def test_mode_max_prefers_larger_values() -> None:
    searcher = BBKBSearch({"x": tune.uniform(0, 1)}, "score", "max", backlog=0)
    searcher.suggest("a")
    searcher.on_trial_complete("a", {"score": 2.0})
    assert [trial.value for trial in optimizer(searcher).trials] == [2.0]


def test_search_limits_its_concurrent_trials() -> None:
    searcher = search(max_concurrent=2)
    assert searcher.suggest("a") is not None
    assert searcher.suggest("b") is not None
    assert searcher.suggest("c") is None
    searcher.on_trial_complete("a", {"loss": 1.0})
    assert searcher.suggest("c") is not None
    limited = tune.search.ConcurrencyLimiter(search(), max_concurrent=1)
    assert limited.suggest("a") is not None
    assert limited.suggest("b") is None


@pytest.mark.parametrize("number", [np.float32(2.0), np.int64(2), np.array(2.0), Decimal(2), 2])
def test_metric_may_be_any_number(number: object) -> None:
    searcher = search()
    searcher.suggest("a")
    searcher.on_trial_complete("a", {"loss": number})
    assert [trial.value for trial in optimizer(searcher).trials] == [-2.0]


@pytest.mark.parametrize("ended", [{"error": True}, {"result": {"loss": math.nan}}, {"result": {}}, {"result": None}])
def test_trial_without_a_finite_metric_is_not_proposed_again(ended: dict[str, Any]) -> None:
    searcher = BBKBSearch({"n": tune.randint(0, 3)}, "loss", "min", backlog=0)
    failed = searcher.suggest("a")
    searcher.on_trial_complete("a", **ended)
    for number in range(6):
        config = present(searcher.suggest(f"t{number}"))
        assert config != failed
        searcher.on_trial_complete(f"t{number}", {"loss": 1.0})


def test_restored_search_continues_as_the_saved_one(tmp_path: Path) -> None:
    saved, restored = search(), search(seed=9)
    drive(saved, 12)
    running = saved.suggest("running")
    saved.save(str(tmp_path / "state"))
    restored.restore(str(tmp_path / "state"))
    assert running is not None
    for searcher in (saved, restored):
        searcher.on_trial_complete("running", {"loss": value(running)})
    assert drive(saved, 5, first=20) == drive(restored, 5, first=20)


def test_backlog_returns_a_proposal_at_once_and_survives_saving(tmp_path: Path) -> None:
    searcher = search(backlog=3)
    searcher.suggest("early")  # a suggestion is ready or not: both are correct, and the thread has started
    backlog(searcher).wait_until_filled()
    assert [searcher.suggest(f"t{number}") is not None for number in range(3)] == [True] * 3
    searcher.on_trial_complete("t0", {"loss": 0.5})
    searcher.save(str(tmp_path / "state"))
    restored = search(backlog=3)
    restored.restore(str(tmp_path / "state"))
    assert restored.suggest("t9") is not None
    for name in ("t1", "t2"):
        restored.on_trial_complete(name, {"loss": 0.5})
    backlog(restored).wait_until_filled()
    assert len(optimizer(restored).trials) == 3


def test_error_while_proposing_ahead_is_raised_by_the_next_call(monkeypatch: pytest.MonkeyPatch) -> None:
    searcher = search(backlog=1)
    backlog(searcher).wait_until_filled()
    searcher.suggest("a")
    backlog(searcher).wait_until_filled()
    searcher._running["a"] = {"p0": 7.0, "p1": 0}  # none of the space
    searcher.on_trial_complete("a", {"loss": 1.0})
    with pytest.raises(ObjectiveError, match=r"p0 must be from 0 to 1, got 7\.0"):
        backlog(searcher).wait_until_filled()


def test_missing_metric_is_reported_before_the_first_trial() -> None:
    for metric, mode in ((None, None), ("loss", None), (None, "min")):
        with pytest.raises(ValueError, match="BBKBSearch needs metric and mode"):
            BBKBSearch(SPACE, metric=metric, mode=mode, backlog=0).suggest("a")


def test_wrong_option_is_rejected_before_tune_begins() -> None:
    with pytest.raises(ValueError, match="did you mean 'bbkb'"):
        BBKBSearch(strategy="bbbkb")
    with pytest.raises(ValueError, match="seed must be a whole number"):
        BBKBSearch(seed=-1)


def curves(searcher: BBKBSearch) -> tuple[TrialCurve, ...]:
    return curves_of(optimizer(searcher))


def test_results_of_running_stopped_and_finished_trials_are_learned() -> None:
    searcher = search()
    for name in ("finished", "stopped", "running"):
        assert searcher.suggest(name) is not None
    for step in (1, 2, 3):
        searcher.on_trial_result("finished", {"loss": 1.0 / step, "training_iteration": step})
    searcher.on_trial_complete("finished", {"loss": 1.0 / 3.0, "training_iteration": 3})
    searcher.on_trial_result("stopped", {"loss": 2.0, "training_iteration": 1})
    searcher.on_trial_complete("stopped", {"loss": 2.0, "training_iteration": 1})
    searcher.on_trial_result("running", {"loss": math.nan, "training_iteration": 1})
    searcher.on_trial_result("running", {"loss": 0.5, "training_iteration": 2})
    searcher.on_trial_result("unknown", {"loss": 0.5, "training_iteration": 9})
    learned = {curve.trial: (curve.steps, curve.rewards, curve.is_finished) for curve in curves(searcher)}
    assert learned == {
        0: ((1, 2, 3), (-1.0, -0.5, -1.0 / 3.0), True),
        1: ((1,), (-2.0,), False),
        2: ((2,), (-0.5,), False),
    }


def test_search_learns_expected_final_values_of_trials_stopped_by_asha() -> None:
    """The scheduler is Tune's own; it stops most trials at their first steps."""
    scheduler: Any = ASHAScheduler("training_iteration", "loss", "min", max_t=27, reduction_factor=3)
    searcher, finished = search(), list[float]()
    for number in range(40):
        config, trial = searcher.suggest(str(number)), Trial("simulated", stub=True)
        assert config is not None
        scheduler.on_trial_add(None, trial)
        result: dict[str, Any] = {}
        for step in range(1, 28):
            result = {"loss": value(config) + 1.0 / step, "training_iteration": step}
            decision = scheduler.on_trial_result(None, trial, dict(result))
            searcher.on_trial_result(str(number), result)
            if decision == "STOP":
                break
        finished += [result["loss"]] if result["training_iteration"] == 27 else []
        searcher.on_trial_complete(str(number), result)
    assert min(finished) < 0.01 + 1.0 / 27.0
    assert 1 < sum(curve.is_finished for curve in curves(searcher)) < 30
    assert {curve.step for curve in curves(searcher)} >= {1, 27}


@NEEDS_PATH_WITHOUT_SPACES
@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore")  # Ray Tune's own
def test_experiment_with_asha_passes_all_results_to_the_search(ray_cluster: str, tmp_path: Path) -> None:
    def train(config: dict[str, Any]) -> None:
        for step in range(1, 10):
            tune.report({"loss": (config["x"] - 0.3) ** 2 + 1.0 / step})

    searcher = BBKBSearch(backlog=0, max_concurrent=2)
    scheduler = ASHAScheduler(max_t=9, reduction_factor=3)
    tuner = tune.Tuner(
        train,
        param_space={"x": tune.uniform(0.0, 1.0)},
        tune_config=tune.TuneConfig(
            search_alg=searcher, scheduler=scheduler, metric="loss", mode="min", num_samples=8, reuse_actors=True
        ),
        run_config=tune.RunConfig(storage_path=str(tmp_path), name="run", verbose=0),
    )
    results = tuner.fit()
    assert not results.errors
    ends = [results[number].metrics for number in range(len(results))]
    reached = sorted(end["training_iteration"] for end in ends if end is not None)
    assert sorted(curve.step for curve in curves(searcher)) == reached
    assert max(reached) == 9


@NEEDS_PATH_WITHOUT_SPACES
@pytest.mark.filterwarnings("ignore")  # Ray Tune's own
def test_tune_runs_and_restores_an_experiment(ray_cluster: str, tmp_path: Path) -> None:
    """Through Tuner: space, metric and mode come from it, and its checkpoints hold the search."""
    searcher = BBKBSearch(backlog=1)
    tuner = tune.Tuner(
        lambda config: {"loss": value(config)},
        param_space=SPACE,
        tune_config=tune.TuneConfig(search_alg=searcher, metric="loss", mode="min", num_samples=3, reuse_actors=True),
        run_config=tune.RunConfig(storage_path=str(tmp_path), name="run", verbose=0),
    )
    results = tuner.fit()
    assert len(results) == 3
    assert not results.errors
    configs = [results[number].config for number in range(len(results))]
    assert all(config is not None and config["fixed"] == 3 for config in configs)
    existing = read_tune(tmp_path / "run", "loss")
    learned = sorted(
        (result.parameters["x"], result.parameters["inner.kind"], result.value) for result in existing.results
    )
    assert learned == sorted((config["x"], config["inner"]["kind"], value(config)) for config in configs if config)
    again = BBKBSearch()
    again.restore_from_dir(str(tmp_path / "run"))
    assert again.metric == "loss"
    assert again.suggest("next") is not None


@pytest.mark.parametrize("size", [0, 2])
def test_search_finishes_once_every_configuration_was_evaluated_and_repeats_were_equal(size: int) -> None:
    searcher = BBKBSearch({"kind": tune.choice([1, 2, 3, 4])}, metric="loss", mode="min", backlog=size)
    kinds: list[int] = []
    for number in range(40):
        config: Any = searcher.suggest(f"t{number}")
        if config == searcher.FINISHED:
            break
        if isinstance(config, dict):
            kinds.append(config["kind"])
            searcher.on_trial_complete(f"t{number}", {"loss": 1.1 * config["kind"]})
    assert set(kinds) == {1, 2, 3, 4}
    assert 7 <= len(kinds) <= 7 + size  # three equal repeats among four values are no coincidence
