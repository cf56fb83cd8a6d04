"""`bbkb.orchestrator.campaign.state`: the validity and the noise of the fitted model, read
from the record of `ModelRefreshed`.
"""

from bbkb.orchestrator.campaign.state import LearnedModel


def record(**changes: object) -> dict[str, object]:
    model = {"inside": 38, "predicted": 40, "noise": 0.001, "most_pulled": [7, 3], "pulls": 60}
    return {"dictionary": [1, 2], "model": {**model, **changes}}


def learned_model(**changes: object) -> LearnedModel:
    model = LearnedModel.of(record(**changes))
    assert model is not None
    return model


def test_record_without_a_fitted_model_has_no_remark() -> None:
    assert LearnedModel.of({"dictionary": [1, 2]}) is None


def test_valid_model_has_a_share_and_no_remark() -> None:
    assert learned_model().share == 0.95
    assert learned_model().remarks == ()


def test_share_is_omitted_for_few_results() -> None:
    assert learned_model(inside=1, predicted=5).share is None
    assert learned_model(inside=1, predicted=5).remarks == ()


def test_overconfident_model_is_remarked_on() -> None:
    (remark,) = learned_model(inside=24).remarks
    assert remark.startswith("the model is overconfident: 60% of 40 results")


def test_share_that_chance_explains_is_not_overconfidence() -> None:
    assert learned_model(inside=30).remarks == ()
    assert learned_model(inside=300, predicted=400).remarks


def test_misses_of_a_single_refresh_are_not_overconfidence() -> None:
    """In the run of the first tutorial, seven of ten results near the optimum were better than
    predicted."""
    model = learned_model(inside=17, predicted=24)
    assert model.share is not None
    assert (round(model.share, 2), model.remarks) == (0.71, ())


def test_candidate_with_a_fifth_of_noiseless_evaluations_is_remarked_on() -> None:
    (remark,) = learned_model(most_pulled=[7, 13]).remarks
    assert remark.startswith("candidate 7 took 13 of 60 evaluations")
    assert "objective.deterministic" in remark
    assert learned_model(most_pulled=[7, 13], noise=0.2).remarks == ()
    assert learned_model(most_pulled=[7, 12]).remarks == ()


def test_record_of_an_older_version_has_no_cautious_correlations() -> None:
    pairs = {"reliability": [[4, 0.5], [8, 1.0]], "cautious_reliability": [[4, 0.3], [8, 1.0]]}
    model = LearnedModel.of({**record(), **pairs})
    assert model is not None
    assert (model.steps, model.cautious_steps) == (((4, 0.5), (8, 1.0)), ((4, 0.3), (8, 1.0)))
    older = LearnedModel.of({**record(), "reliability": pairs["reliability"]})
    assert older is not None
    assert (older.steps, older.cautious_steps) == (model.steps, ())
