"""Values that are expected to be good: their densities, the configurations drawn near them, and
rejected priors."""

import numpy as np
import pytest

from bbkb.objectives import coding
from bbkb.objectives.objective import ObjectiveError
from bbkb.objectives.parameters import Choice, Ordered, Parameter, Range, Space
from bbkb.objectives.sampling import make_candidates
from bbkb.objectives.space import SearchSpace
from tests.present import present

SPACE = SearchSpace(
    {
        "lr": Range(1e-4, 1.0, log=True, prior=0.01, confidence="high"),
        "model": Choice(("svm", "forest", "knn"), prior="forest"),
        "depth": Range(1, 9, integer=True, when={"model": "forest"}, prior=3, confidence="low"),
        "x": Range(0.0, 1.0),
    }
)


@pytest.mark.parametrize(
    "parameter",
    [
        Range(0.0, 1.0, prior=0.9),
        Range(1, 40, integer=True, prior=4, confidence="high"),
        Ordered((1, 2, 4, 8, 16), prior=8, confidence="low"),
    ],
    ids=["real", "integer", "ordered"],
)
def test_numbers_are_drawn_by_their_density(parameter: Parameter) -> None:
    codes = coding.draw_near_prior(parameter, (np.arange(20_000) + 0.5) / 20_000)
    bins = np.unique(codes) if not coding.is_real(parameter) else np.linspace(0.025, 0.975, 20)
    counts = np.array([np.isclose(codes, code, atol=0.025).mean() for code in bins])
    density = present(coding.log_density({"x": parameter}, bins[:, None]))
    expected = np.exp(density)
    if not coding.is_real(parameter):  # a value at an end has half of the room of the others
        expected[[0, -1]] /= 2
    assert counts / counts.sum() == pytest.approx(expected / expected.sum(), abs=0.01)


def test_expected_choice_is_drawn_more_often_by_its_ratio() -> None:
    codes = coding.draw_near_prior(Choice(("a", "b"), weights=(2, 1), prior="b"), (np.arange(600) + 0.5) / 600)
    assert np.bincount(codes.astype(int)).tolist() == [200, 400]


def test_log_density_is_relative_to_the_expected_configuration() -> None:
    best = present(SPACE.candidate({"lr": 0.01, "model": "forest", "depth": 3, "x": 0.2}).log_prior)
    assert best == pytest.approx(0.0)
    tenth = present(SPACE.candidate({"lr": 0.1, "model": "forest", "depth": 3, "x": 0.9}).log_prior)
    assert tenth == pytest.approx(-0.5 * (0.25 / coding.DEVIATIONS["high"]) ** 2)
    without_depth = present(SPACE.candidate({"lr": 0.01, "model": "svm", "x": 0.2}).log_prior)
    assert without_depth == pytest.approx(-np.log(4.0) - 0.5)


def test_candidates_begin_with_the_expected_values_and_half_of_them_are_near() -> None:
    candidates = make_candidates(SPACE, 512)
    first = candidates.parameters(0)
    assert (first["lr"], first["model"], first["depth"]) == (pytest.approx(0.01), "forest", 3)
    is_near = np.abs(np.log10(candidates.columns["lr"].astype(float)) + 2.0) < 0.5  # one deviation
    assert 0.4 < is_near.mean() < 0.55  # half of 68 %, and half of 25 %
    kinds = candidates.columns["model"].tolist()
    assert 0.4 < kinds.count("forest") / 512 < 0.58


def test_finite_space_begins_near_the_expected_values_and_has_all_configurations() -> None:
    space: Space = {"n": Range(1, 50, integer=True, prior=7, confidence="high"), "c": Choice(("a", "b"), prior="a")}
    candidates = make_candidates(space)
    assert len(candidates) == 100
    assert candidates.parameters(0) == {"n": 7, "c": "a"}
    assert np.abs(candidates.columns["n"][:10].astype(int) - 7).mean() < 15


@pytest.mark.parametrize(
    ("parameter", "words"),
    [
        (Range(0.0, 1.0, prior=2.0), r"space\.p\.prior must be from 0 to 1, got 2\.0"),
        (Range(1, 9, integer=True, prior=2.5), r"space\.p\.prior must be a whole number, got 2\.5"),
        (Choice(("a", "b"), prior="c"), r"space\.p\.prior must be one of 'a', 'b', got 'c'"),
        (Ordered((1, 2), prior=3), r"space\.p\.prior must be one of 1, 2, got 3"),
    ],
)
def test_prior_is_a_value_of_its_parameter(parameter: Parameter, words: str) -> None:
    with pytest.raises(ObjectiveError, match=words):
        SearchSpace({"p": parameter, "x": Range(0.0, 1.0)})


def test_confidence_is_one_of_three_words_beside_a_prior() -> None:
    with pytest.raises(ValueError, match="confidence needs prior"):
        Range(0.0, 1.0, confidence="high")
    with pytest.raises(ValueError, match="confidence must be low, medium or high, got 'sure'"):
        Range(0.0, 1.0, prior=0.5, confidence="sure")  # type: ignore[arg-type]
    assert Range(0.0, 1.0, prior=0.5).confidence == "medium"
