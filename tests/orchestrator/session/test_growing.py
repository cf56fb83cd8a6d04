"""A session grows its candidates, and counts the workers of a cluster."""

import dataclasses
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from typer.testing import CliRunner

from bbkb.orchestrator.bandit.sparse.state import SparseState
from bbkb.orchestrator.campaign.events import BatchChosen, CampaignCreated, CandidatesGrown, Event, ModelRefreshed
from bbkb.orchestrator.campaign.settings import Settings, plain
from bbkb.orchestrator.cli.main import app
from bbkb.orchestrator.engine import pool
from bbkb.orchestrator.engine.engine import replay
from bbkb.orchestrator.engine.replaying import replay_until
from bbkb.orchestrator.errors import ConfigError, UserError
from bbkb.orchestrator.history.fold import fold
from bbkb.orchestrator.session.build import build
from bbkb.orchestrator.session.executors import first_workers, placement_of
from bbkb.orchestrator.session.open import create_run, open_session
from bbkb.orchestrator.settings.loading import from_mapping, load
from bbkb.orchestrator.store.runs import Run
from bbkb.orchestrator.store.verify import verify
from bbkb.workers.executor import ExecutorError
from bbkb.workers.messages import Share
from bbkb.workers.on_ray.places import NamedNode, check_fits
from tests.present import of_type

OBJECTIVE = "def f(x, n, m, s=0.5):\n    return (x - 0.3)**2 + (n/1000 - 0.7)**2 + (s - 0.55)**2 + 0.1 * (m != 'b')\n"
SPACE = {
    "x": {"low": 0.0, "high": 1.0},
    "n": {"low": 1, "high": 1000, "integer": True},
    "m": {"choices": ["a", "b", "c"]},
    "s": {"low": 0.0, "high": 1.0, "step": 0.05, "when": {"m": ["a", "b"]}},
}

Make = Callable[..., Settings]


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Make]:
    """Settings of a campaign whose space is of all kinds of parameters; sections may be given."""
    folder = tmp_path_factory.mktemp("growth")
    (folder / "objective_of_growth.py").write_text(OBJECTIVE)

    def make(**sections: object) -> Settings:
        tree = {
            "name": "grows",
            "objective": {"callable": f"{folder}/objective_of_growth.py:f", "direction": "minimize"},
            "space": SPACE,
            "forbid": [{"m": "c", "x": {"above": 0.9}}],
            "budget": {"evaluations": 40},
            "workers": {"executor": "simulated", "count": 4},
            "runs": str(folder / "runs"),
            **sections,
        }
        return from_mapping(tree)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pool, "MOST_LIVE", 1100)
        yield make


def run_session(settings: Settings) -> Run:
    """The run after one session."""
    run = create_run(settings, build(settings))
    assert open_session(run, settings).run().outcome == "finished"
    return run


@pytest.fixture(scope="module")
def grown(campaign: Make) -> Run:
    """A finished campaign whose candidates have grown, which tests read only."""
    return run_session(campaign())


def growths_of(events: list[Event]) -> list[CandidatesGrown]:
    return [event for event in events if isinstance(event, CandidatesGrown)]


def test_candidates_are_appended_and_chosen_and_the_log_explains_them(campaign: Make, grown: Run) -> None:
    events = grown.events()
    growths = growths_of(events)
    assert len(growths) >= 3
    picks = [pick for event in events if isinstance(event, BatchChosen) for pick in event.picks]
    assert max(pick.arm for pick in picks) >= 1024, "an appended candidate was chosen"
    engine = replay(build(campaign()).problem, events)
    for pick in picks:
        assert engine.pool.candidates.parameters(pick.arm) == pick.parameters
    assert fold(events).appended == sum(event.size for event in growths)


def test_limit_bounds_the_live_candidates_and_retires_only_unchosen_ones(campaign: Make, grown: Run) -> None:
    events = grown.events()
    engine = build(campaign()).problem.engine()
    picked: set[int] = set()
    for event in events:
        engine.restore(event)
        if isinstance(event, BatchChosen):
            picked |= {pick.arm for pick in event.picks}
        if isinstance(event, CandidatesGrown):
            assert not picked & set(event.retired)
            live = len(engine.pool.candidates) - len(cast(SparseState, engine.model).set_aside)
            assert live <= 1100
    retired = {arm for event in growths_of(events) for arm in event.retired}
    assert retired
    assert not picked & retired


def test_log_cut_anywhere_leads_to_the_same_state(campaign: Make, grown: Run) -> None:
    settings = campaign()
    events, problem = grown.events(), build(settings).problem
    whole = replay(problem, events)
    assert np.array_equal(replay(build(settings).problem, events).model.pulls.counts, whole.model.pulls.counts)
    places = [place for place, event in enumerate(events) if isinstance(event, CandidatesGrown)]
    for place in places[:2]:
        before, after = replay(problem, events[:place]), replay(problem, events[: place + 1])
        assert len(after.pool.candidates) == len(cast(SparseState, after.model).model.arms)
        assert len(after.pool.candidates) == len(before.pool.candidates) + cast(CandidatesGrown, events[place]).size
        assert cast(SparseState, after.model).grown_at == before.model.pulls.total


def test_resume_continues_growing_and_a_replay_repeats_every_choice_and_growth(campaign: Make) -> None:
    run = run_session(campaign())
    first = len(growths_of(run.events()))
    larger = load(run.settings_file, ["budget.evaluations=60"])
    assert open_session(run, larger).run().outcome == "finished"
    events = run.events()
    assert len(growths_of(events)) > first
    arms = [event.first for event in growths_of(events)]
    assert all(arm < other for arm, other in pairwise(arms))
    with run.store() as store:
        assert verify(store, run.name).problems == []
    shown = CliRunner().invoke(app, ["replay", str(run.folder)])
    assert shown.exit_code == 0, shown.output
    assert "all results are equal" in shown.output


def choices_and_growths(events: list[Event]) -> list[object]:
    """Return the chosen and appended candidates, in order."""
    return [
        [pick.parameters for pick in event.picks] if isinstance(event, BatchChosen) else (event.columns, event.retired)
        for event in events
        if isinstance(event, BatchChosen | CandidatesGrown)
    ]


def test_candidates_appended_and_chosen_are_the_same_on_every_database(
    campaign: Make, grown: Run, database_url: str, tmp_path: Path
) -> None:
    plain = grown.events()
    settings = campaign(store=database_url, runs=str(tmp_path))
    run = run_session(settings)
    assert choices_and_growths(run.events()) == choices_and_growths(plain)
    assert replay_until(build(settings).problem, run.events(), None, is_checked=True).differences == ()
    larger = load(run.settings_file, ["budget.evaluations=48"])
    assert open_session(run, larger).run().outcome == "finished"
    assert len(growths_of(run.events())) > len(growths_of(plain))


def test_enqueued_configurations_are_the_first_trials(campaign: Make) -> None:
    enqueued = [{"x": 0.25, "n": 500, "m": "c"}, {"x": 0.5, "n": 1, "m": "a", "s": 0.15}]
    events = run_session(campaign(enqueue=enqueued)).events()
    first = next(event for event in events if isinstance(event, BatchChosen))
    assert [pick.parameters for pick in first.picks] == enqueued
    assert [pick.trial for pick in first.picks] == [0, 1]


@pytest.mark.parametrize(
    "sections",
    [
        {"candidates": {"size": 200}},
        {"strategy": {"name": "gp_ucb"}, "budget": {"evaluations": 20}},
        {"space": {"m": {"choices": ["a", "b"]}, "x": {"low": 0, "high": 1, "step": 0.1}, "n": {"constant": 1}}},
    ],
)
def test_candidates_are_unchanged_if_growth_is_off_or_impossible(campaign: Make, sections: dict[str, Any]) -> None:
    settings = campaign(**{"forbid": [], **sections})
    assert not build(settings).problem.pool.grows


def test_candidates_of_a_continuous_space_repeat_only_without_growth(campaign: Make) -> None:
    def may_repeat(**sections: object) -> bool:
        problem = build(campaign(**sections)).problem
        return problem.engine().pool.arms(problem.strategy, problem.is_deterministic).layout.repeats

    assert not may_repeat()
    assert may_repeat(candidates={"size": 64})
    function = plain(campaign())["objective"]["callable"]
    objective = {"callable": function, "direction": "minimize", "deterministic": True}
    assert not may_repeat(candidates={"size": 64}, objective=objective)


@pytest.fixture(scope="module", params=["async", "batch"])
def run(tmp_path_factory: pytest.TempPathFactory, request: Any) -> Run:
    """A finished campaign in virtual time, which tests read only."""
    settings = from_mapping(
        {
            "name": "replayed",
            "objective": {"name": "branin", "direction": "minimize"},
            "candidates": {"size": 200},
            "strategy": {"name": "bbkb", "mode": request.param},
            "budget": {"evaluations": 40},
            "workers": {"executor": "simulated", "count": 5, "simulation": {"sigma": 1.0, "failure_rate": 0.1}},
            "runs": str(tmp_path_factory.mktemp("runs")),
        }
    )
    created = create_run(settings, build(settings))
    open_session(created, settings).run()
    return created


def problem_of(run: Run) -> Any:
    created = of_type(CampaignCreated, run.events()[0])
    return build(created.settings).problem


def test_replay_repeats_every_choice_and_draw(run: Run) -> None:
    events = run.events()
    replayed = replay_until(problem_of(run), events, None, is_checked=True)
    assert replayed.differences == ()
    assert replayed.repeated == sum(isinstance(event, BatchChosen | ModelRefreshed) for event in events) > 5
    assert replayed.engine.state.totals.succeeded == 40


def test_replay_finds_a_choice_that_the_strategy_would_not_make(run: Run) -> None:
    events: list[Event] = list(run.events())
    position = next(i for i, event in enumerate(events) if isinstance(event, BatchChosen) and event.round > 0)
    choice = of_type(BatchChosen, events[position])
    wrong = dataclasses.replace(choice.picks[0], arm=(choice.picks[0].arm + 1) % 200)
    events[position] = dataclasses.replace(choice, picks=(wrong, *choice.picks[1:]))
    differences = replay_until(problem_of(run), events, position + 1, is_checked=True).differences
    (difference,) = differences
    assert difference.startswith(f"event {position}: the choice was [{wrong.arm}")
    assert f"[{choice.picks[0].arm}" in difference


def test_replay_finds_a_dictionary_that_the_strategy_would_not_draw(run: Run) -> None:
    events: list[Event] = list(run.events())
    position = max(i for i, event in enumerate(events) if isinstance(event, ModelRefreshed))
    refresh = of_type(ModelRefreshed, events[position])
    record = {**refresh.record, "dictionary": [*refresh.record["dictionary"], 199]}
    events[position] = dataclasses.replace(refresh, record=record)
    differences = replay_until(problem_of(run), events, position + 1, is_checked=True).differences
    (difference,) = differences
    assert difference.startswith(f"event {position}: dictionary was")


def test_replay_stops_at_any_event_and_rejects_others(run: Run) -> None:
    events = run.events()
    earlier = replay_until(problem_of(run), events, 30, is_checked=False)
    assert earlier.position == 30
    assert earlier.engine.state.totals.succeeded < 40
    for until in (0, len(events) + 1):
        with pytest.raises(UserError, match=f"--until must be >= 1 and <= {len(events)}"):
            replay_until(problem_of(run), events, until, is_checked=False)


def test_replay_command_shows_the_posterior_and_the_reasons(run: Run) -> None:
    shown = CliRunner().invoke(app, ["replay", str(run.folder), "--top", "3"])
    assert shown.exit_code == 0
    assert "all results are equal" in shown.output
    assert "the 3 arms with the largest upper bounds" in shown.output
    assert "ended by:" in shown.output


def settings_of(**workers: object) -> Settings:
    return from_mapping(
        {"name": "gangs", "objective": {"name": "branin"}, "budget": {"evaluations": 4}, "workers": workers}
    )


def test_evaluation_on_several_machines_runs_in_worker_actors() -> None:
    settings = settings_of(machines=2, cpus=3)
    placement = placement_of(settings, "gangs", None)
    assert (placement.kind, placement.machines, placement.is_spread) == ("actor", 2, True)
    assert placement.share_of(None) == Share(cpus=3.0, gpus=0.0, machines=2)
    assert first_workers(settings, "gangs") is None


def test_trial_whose_parameter_gives_gpus_has_the_machines_too() -> None:
    workers = settings_of(machines=2, gpus_from="gpus").workers
    assert workers.share_of({"gpus": 4}) == Share(cpus=1.0, gpus=4.0, machines=2)
    assert workers.share_of({"gpus": None}) == Share(cpus=1.0, gpus=0.0, machines=2)


def test_trainers_of_ray_train_have_a_group_whose_parts_may_share_a_node() -> None:
    placement = placement_of(settings_of(ray_train=True), "trainers", None)
    assert (placement.kind, placement.is_spread) == ("actor", False)
    assert type(placement.crew).__name__ == "TrainerCrew"


@pytest.mark.parametrize(
    ("workers", "rule"),
    [
        ({"machines": 2, "executor": "inline"}, "must be 1 without workers.executor ray, got 2"),
        ({"machines": 2, "executor": "simulated"}, "must be 1 without workers.executor ray, got 2"),
        ({"machines": 2, "kind": "task"}, "must be actor or auto if workers.machines is above 1"),
        ({"ray_train": True, "executor": "inline"}, "ray_train needs workers.executor ray"),
        ({"ray_train": True, "kind": "task"}, "must be actor or auto"),
        ({"machines": 0}, "workers.machines"),
        ({"machines": 2, "spread": "wide"}, "workers.spread"),
    ],
)
def test_settings_that_cannot_work_are_rejected(workers: dict[str, object], rule: str) -> None:
    with pytest.raises(ConfigError, match=rule):
        settings_of(**workers)


def test_machines_that_the_cluster_can_never_provide_are_rejected_with_the_list_of_nodes() -> None:
    nodes = [NamedNode(f"10.0.0.{number}", {"CPU": 4.0}) for number in range(2)]
    strict, soft = (
        placement_of(settings_of(machines=3, cpus=2, spread=spread), "g", None) for spread in ("strict", "soft")
    )
    check_fits(soft.largest_need(), nodes)
    with pytest.raises(
        ExecutorError, match=r"must fit on 3 nodes, got CPU 2 on each; the nodes have 10.0.0.0, 10.0.0.1"
    ):
        check_fits(strict.largest_need(), nodes)
