"""Population-based training in whole campaigns: copies, schedules, kills and refusals."""

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bbkb import Campaign, Result, load, strategies, tune
from bbkb.objectives.objective import Report
from bbkb.objectives.parameters import Choice, Ordered, Range
from bbkb.objectives.sampling import make_candidates, perturb
from bbkb.objectives.space import SearchSpace
from bbkb.orchestrator.ask_tell.space import Optimizer
from bbkb.orchestrator.bandit.results import CurveUpdate, TrialCurve
from bbkb.orchestrator.bandit.strategy import Choose, Observation, Pick
from bbkb.orchestrator.campaign.events import TrialStopped, TrialSucceeded
from bbkb.orchestrator.campaign.state import CampaignState
from bbkb.orchestrator.campaign.trainings import Trainings
from bbkb.orchestrator.history.fold import History
from bbkb.orchestrator.history.tables import training_remark
from bbkb.orchestrator.store.lease import Identity
from bbkb.orchestrator.store.runs import open_run
from bbkb.orchestrator.store.verify import verify
from bbkb.workers.messages import Trial
from tests.executors import HERE, workers_of
from tests.orchestrator.runs import bbkb, history_of
from tests.waiting import wait_until

ROOT = str(Path(__file__).parents[2])
STEPS = 30
SPACE = {"h0": Range(0.0, 1.0), "h1": Range(0.0, 1.0)}
PBT: dict[str, Any] = {"name": "pbt", "population": 6, "interval": 5, "quantile": 0.4, "last_step": STEPS}


def quadratic(h0: float, h1: float, report: Report, folder: Path) -> float:
    """The paper's toy problem (figure 2); the checkpoint remembers the parameters of each step."""
    checkpoint = folder / "theta.json"
    theta, course = json.loads(checkpoint.read_text()) if checkpoint.exists() else ([0.9, 0.9], [])
    for step in range(len(course) + 1, STEPS + 1):
        theta = [value - 0.05 * h * value for value, h in zip(theta, (h0, h1), strict=True)]
        course.append([h0, h1])
        draft = folder / "draft"
        draft.write_text(json.dumps([theta, course]))
        draft.rename(checkpoint)
        report(1.2 - theta[0] ** 2 - theta[1] ** 2, step)
    return float(1.2 - theta[0] ** 2 - theta[1] ** 2)


def train(tmp_path: Path, executor: str = "simulated", function: Any = quadratic, **arguments: Any) -> Result:
    sections = {"workers": {"executor": executor}, "runs": str(tmp_path / "runs")}
    workers = workers_of(executor)
    options = {"evaluations": 100, "workers": workers, "strategy": PBT, "settings": sections, **arguments}
    return tune(function, SPACE, direction="maximize", progress=False, **options)


def schedule(history: History, trial: int) -> list[list[object]]:
    """Return the parameters at each step of the training of `trial`, by the log alone."""
    row = history.trials[trial]
    before: list[list[object]] = []
    if row.pick.starts_from is not None:
        origin, step = row.pick.starts_from
        before = schedule(history, origin)[:step]
    return before + [list(row.parameters.values())] * (row.training.last_step - len(before))


def check(folder: Path, history: History, replays: bool = True) -> None:
    """Check that the log is sound, and that each finished training followed its recorded schedule."""
    with open_run(folder).store() as store:
        assert verify(store, folder.name).problems == []
    if replays:
        assert "all results are equal" in bbkb("replay", folder).output
    for row in history.succeeded:
        _, course = json.loads((folder / "trials" / f"{row.trial:06d}" / "theta.json").read_text())
        assert course == schedule(history, row.trial)
        assert len(course) == STEPS


@pytest.mark.parametrize("executor", HERE)
def test_population_copies_checkpoints_and_shows_its_schedules(tmp_path: Path, executor: str) -> None:
    result = train(tmp_path, executor)
    history = history_of(result)
    check(result.folder, history)
    copies = [row for row in history.trials if row.pick.starts_from is not None]
    assert len(copies) >= 4
    assert all("starts from trial" in training_remark(history, row) for row in copies)
    assert len(history.succeeded) == 6
    assert [row.status for row in history.trials].count("stopped") == len(copies)
    kept = {folder.name for folder in (result.folder / "trials" / ".saved").iterdir()}
    assert len(kept) <= 2 * 6


def test_equal_seeds_give_equal_populations(tmp_path: Path) -> None:
    listed = strategies.PBT(population=6, interval=5, quantile=0.4, last_step=STEPS)
    runs = [history_of(train(tmp_path / "a")), history_of(train(tmp_path / "b", strategy=listed))]
    first, second = ([(row.pick, row.value) for row in history.trials] for history in runs)
    assert first == second


def test_budget_of_steps_counts_copied_steps_once_and_completes_a_member(tmp_path: Path) -> None:
    result = train(tmp_path, "inline", steps=100)
    history = history_of(result)
    check(result.folder, history)
    trained = sum(
        row.training.last_step - (row.pick.starts_from[1] if row.pick.starts_from else 0) for row in history.trials
    )  # fmt: skip
    assert history.campaign.trainings.steps.total == trained
    assert 100 <= trained <= 100 + 4 * PBT["interval"]
    assert history.succeeded


def test_pbt_does_not_repeat_a_copy_that_failed() -> None:
    strategy = strategies.PBT(population=2, interval=1, quantile=0.5)
    rng = np.random.default_rng(0)
    curves = [TrialCurve(trial, trial, (1,), (float(trial),)) for trial in (0, 1)]
    state = strategy.with_curves(strategy.init(np.eye(2), rng), CurveUpdate(tuple(curves), (0, 1)))
    state = strategy.tell(state, [Observation(arm, 0.0, is_stopped=True) for arm in (0, 1)], rng)
    state = strategy.extend(state, np.zeros((1, 2)), [])
    copy = Pick(2, starts_from=1)
    chosen = strategy.ask(state, [], 5)
    assert isinstance(chosen, Choose)
    assert repr(chosen.picks) == repr((copy, Pick(1, trial=1)))
    assert chosen.gives_up == (0,)
    after = strategy.ask(strategy.tell(state, [Observation(2, None)], rng), [1], 5)
    assert not isinstance(after, Choose) or 2 not in [pick.arm for pick in after.picks]


def test_newest_checkpoints_are_needed_and_those_from_which_open_trials_start() -> None:
    saved = {0: (5, 0.0), 1: (20, 0.0), 2: (10, 0.0), 3: (15, 0.0)}
    state = CampaignState(trainings=Trainings(saved=saved, removed=frozenset({0, 2})))
    assert state.first_needed == {0: np.inf, 1: 20, 2: np.inf, 3: 15}
    attempts = [Trial(3, 1, {}, 1), Trial(4, 1, {}, 1, starts_from=(1, 10))]
    assert replace(state, backlog=attempts).first_needed == {0: np.inf, 1: 10, 2: np.inf, 3: 15}


def test_members_train_to_their_ends_when_no_trial_is_left(tmp_path: Path) -> None:
    result = train(tmp_path, evaluations=7)
    check(result.folder, history_of(result))
    assert len(history_of(result).trials) == 7
    assert len(history_of(result).succeeded) == 6


def test_members_whose_checkpoints_are_missing_train_to_their_ends(tmp_path: Path) -> None:
    def forgetful(h0: float, h1: float, report: Report, folder: Path) -> float:
        (folder / "theta.json").unlink(missing_ok=True)
        return quadratic(h0, h1, report, folder)

    assert len(history_of(train(tmp_path, function=forgetful)).succeeded) == 6


ON_RAY = """
    import json, sys, time
    from pathlib import Path
    sys.path.insert(0, ROOT)
    from tests.orchestrator.test_population import PBT, SPACE
    from bbkb import tune

    def slow(h0, h1, report, folder):
        sys.path.insert(0, ROOT)  # a worker of the cluster does not know the tests
        from tests.orchestrator.test_population import quadratic
        def report_later(value, step):
            time.sleep(SECONDS)
            report(value, step)
        return quadratic(h0, h1, report_later, folder)

    if __name__ == "__main__":
        tune(slow, SPACE, direction="maximize", evaluations=40, workers=4, name="killed", progress=False,
             resume=sys.argv[1] if len(sys.argv) > 1 else False,
             settings={"runs": "runs", "workers": {"executor": "EXECUTOR"}, "strategy": PBT})
"""


@pytest.mark.parametrize(
    ("executor", "seconds"),
    [
        pytest.param("inline", 0.02, marks=pytest.mark.thorough),
        pytest.param("ray", 0.3, marks=pytest.mark.thorough),
    ],
)
def test_killed_coordinator_loses_and_duplicates_nothing(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, executor: str, seconds: float
) -> None:
    if executor == "ray":
        monkeypatch.setenv("RAY_ADDRESS", request.getfixturevalue("ray_cluster"))
    script = tmp_path / "script.py"
    text = ON_RAY.replace("EXECUTOR", executor).replace("ROOT", repr(ROOT)).replace("SECONDS", str(seconds))
    script.write_text(textwrap.dedent(text))

    def copies() -> int:
        folder = next(iter((tmp_path / "runs").glob("killed-*")), None)
        if folder is None or not (folder / "campaign.yaml").exists():
            return 0
        return sum(row.pick.starts_from is not None for row in history_of(load(folder)).trials)

    process = subprocess.Popen([sys.executable, script], cwd=tmp_path)
    try:
        assert wait_until(lambda: copies() >= 1 or process.poll() is not None)
        assert process.poll() is None, "the script ended before a checkpoint was copied"
        folder = next((tmp_path / "runs").glob("killed-*"))
        run = open_run(folder)
        with run.store() as store:
            identity = Identity.read(store.holding(run.name).identity)
        assert identity is not None
        os.kill(identity.pid, signal.SIGKILL)
        before = {event.trial for event in run.events() if isinstance(event, TrialSucceeded)}
        if executor == "ray":  # Ray restarts the coordinator
            assert process.wait(timeout=240) == 0
    finally:
        process.kill()
        process.wait()
    if executor == "inline":
        subprocess.run([sys.executable, script, str(folder)], cwd=tmp_path, check=True, capture_output=True)
    assert len(history_of(load(folder)).sessions) == 2
    history = history_of(load(folder))
    check(folder, history, replays=executor == "ray")  # inline, the function of the script is not importable
    ended = [event.trial for event in open_run(folder).events() if isinstance(event, TrialSucceeded)]
    assert len(ended) == len(set(ended)) == 6
    assert before <= set(ended)
    stops = [(event.trial, event.step) for event in open_run(folder).events() if isinstance(event, TrialStopped)]
    assert len(stops) == len(set(stops))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"early_stopping": "asha"}, "early_stopping must be left out with strategy pbt"),
        ({"evaluations": 6}, "budget.evaluations must be above strategy.population, 6"),
        ({"strategy": {**PBT, "interval": STEPS}}, "interval must be below the last step of a training, 30"),
        ({"strategy": {**PBT, "perturbation_factors": [1.1, 1.2]}}, "perturbation_factors must be two numbers"),
        ({"objectives": [{"metric": name, "direction": "maximize"} for name in "ab"]}, "several objectives"),
    ],
)
def test_campaign_that_cannot_train_a_population_is_rejected(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    sections = {"workers": {"executor": "inline"}, "runs": str(tmp_path)}
    arguments = {"direction": "maximize", "evaluations": 50, "strategy": PBT, "settings": sections, **changes}
    if "objectives" in changes:
        del arguments["direction"]
    with pytest.raises(Exception, match=re.escape(message)):
        Campaign(quadratic, SPACE, **arguments).run()


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda h0, h1, report: 0.0, "needs trainings that keep checkpoints"),
        (lambda h0, h1, folder: 0.0, "needs a function that reports values"),
    ],
)
def test_function_without_reports_or_checkpoints_is_rejected(tmp_path: Path, function: Any, message: str) -> None:
    sections = {"workers": {"executor": "inline"}, "runs": str(tmp_path)}
    with pytest.raises(Exception, match=message):
        tune(function, SPACE, direction="maximize", evaluations=50, strategy=PBT, progress=False, settings=sections)


@pytest.mark.parametrize("strategy", ["pbt", strategies.PBT, strategies.PBT(population=6)])
def test_optimizer_rejects_a_population(strategy: Any) -> None:
    with pytest.raises(ValueError, match="which only a campaign can do"):
        Optimizer({"x": Range(0.0, 1.0)}, direction="maximize", strategy=strategy)


def test_perturbed_values_are_neighbors_within_their_ranges() -> None:
    space = SearchSpace(
        {
            "rate": Range(1e-4, 1.0, log=True),
            "width": Range(1, 64, integer=True),
            "depth": Range(0, 3, integer=True),
            "size": Ordered((8, 16, 32)),
            "kind": Choice(("a", "b")),
            "only_b": Range(1.0, 2.0, when={"kind": "b"}),
        }
    )
    arms = make_candidates(space, size=200, seed=0)
    parents = list(range(200))
    kept = perturb(space, arms, parents, (0.8, 1.2), 0.0, np.random.default_rng(1))
    before, after = arms.columns, kept.columns
    ratio = after["rate"].astype(float) / before["rate"].astype(float)
    bounded = np.isin(after["rate"], (1e-4, 1.0))
    assert np.isclose(ratio[~bounded, None], (0.8, 1.2)).any(axis=1).all()
    for name in ("width", "depth", "size"):
        assert (after[name] != before[name]).mean() > 0.5, name
    assert set(after["depth"].tolist()) == {0, 1, 2, 3}
    assert (after["kind"] == before["kind"]).all()
    assert all((value is not None) == (kind == "b") for kind, value in zip(after["kind"], after["only_b"], strict=True))
    drawn = perturb(space, arms, parents, (0.8, 1.2), 1.0, np.random.default_rng(1))
    assert 0.3 < (drawn.columns["kind"] != before["kind"]).mean() < 0.7
