"""Shares of arms within μ ± 2σ: those of a correct model, and those of a wrong one."""

import numpy as np
import pytest

from benchmarks.peers.validity import held_of

RNG = np.random.default_rng(0)


def test_a_right_model_holds_95_percent_of_all_and_of_the_best_what_is_foretold() -> None:
    mean, deviation = RNG.standard_normal(20_000), RNG.uniform(0.1, 1.0, 20_000)
    everything, best, right, _ = held_of(mean, deviation, mean + deviation * RNG.standard_normal(20_000), RNG)
    assert everything == pytest.approx(0.954, abs=0.01)
    assert best == pytest.approx(right, abs=0.03)
    assert best < everything


def test_without_any_knowledge_a_right_model_holds_about_half_of_the_best() -> None:
    _, best, right, above = held_of(np.zeros(20_000), np.ones(20_000), RNG.standard_normal(20_000), RNG)
    assert best == pytest.approx(0.54, abs=0.05)
    assert right == pytest.approx(0.54, abs=0.02)
    assert above == 1.0


def test_a_model_that_is_too_sure_holds_fewer_than_foretold() -> None:
    truth = RNG.standard_normal(5000)
    everything, best, right, _ = held_of(0.5 * truth, np.full(5000, 0.1), truth, RNG)
    assert everything < 0.5
    assert best == 0.0
    assert right > 0.9
