"""The session's side of the executor."""

from pathlib import Path

from bbkb.orchestrator.campaign.commands import Ask, Dispatch, GiveUp
from bbkb.orchestrator.campaign.policy import decide
from bbkb.orchestrator.campaign.stops import StopCause
from bbkb.orchestrator.session.evaluations import Evaluations
from bbkb.orchestrator.session.problem import replay
from bbkb.orchestrator.session.recorder import Recorder
from tests.orchestrator.session.parabola import Campaign
from tests.present import of_type


def test_evaluations_forget_the_stop_cause_of_an_attempt_that_is_given_up(tmp_path: Path) -> None:
    campaign = Campaign(tmp_path)
    executor = campaign.simulated_executor()
    engine = replay(campaign.problem, campaign.events())
    recorder = Recorder(engine, campaign.store.claim("c", "test"), lambda: False, lambda reason: None)
    recorder.record(campaign.session_event(executor))
    ask = of_type(Ask, decide(recorder.campaign, 0.0))
    for event in engine.record(engine.compute(ask, engine.state)):
        recorder.record(event)
    dispatch = of_type(Dispatch, decide(recorder.campaign, 0.0))
    evaluations = Evaluations(campaign.problem, executor, recorder)
    evaluations.dispatch(dispatch, engine.pool.candidates)
    trial = next(iter(recorder.campaign.running))
    evaluations.stop_causes[trial] = StopCause.PAUSE  # requested, without a response
    evaluations.give_up(GiveUp((trial,), "late"))
    assert trial not in evaluations.stop_causes
    assert trial not in recorder.campaign.running
