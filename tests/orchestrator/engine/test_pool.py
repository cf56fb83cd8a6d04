"""Tests of the pool of candidates."""

import numpy as np
import pytest

from bbkb.objectives.parameters import Ordered, Range, Space
from bbkb.objectives.sampling import make_candidates
from bbkb.objectives.space import SearchSpace
from bbkb.orchestrator.bandit.start.warm_start import with_known_results
from bbkb.orchestrator.bandit.strategy import AnyStrategy
from bbkb.orchestrator.engine.pool import Appended, Pool
from bbkb.orchestrator.settings.strategies import build_strategy
from tests.present import present

DEFAULT = build_strategy({"name": "bbkb"})
PLAIN: Space = {f"x{index}": Range(0.0, 1.0) for index in range(11)}


def pool(space: Space) -> Pool:
    return Pool(make_candidates(space, 64, at_center=True), SearchSpace(space))


def test_default_strategy_prefers_the_center_also_among_appended_candidates() -> None:
    first = pool(PLAIN).arms(DEFAULT, None)
    assert first.layout.prefers_center
    density = present(first.log_prior)
    assert density[0] == 0.0
    assert np.argmin(density) == np.argmax(((first.features - 0.5) ** 2).sum(axis=1))
    columns = {name: (0.5, 0.9 if name == "x3" else 0.5) for name in PLAIN}
    _, _, appended = pool(PLAIN).append(Appended(columns, ()))
    assert present(appended).tolist() == pytest.approx([0.0, -0.5 * 11 / 9 * 0.4**2])


@pytest.mark.parametrize(
    ("space", "strategy"),
    [
        (PLAIN, build_strategy({"name": "bbkb", "preset": "paper"})),
        (PLAIN, build_strategy({"name": "gp_ucb"})),
        (PLAIN, with_known_results(DEFAULT)),
        ({**PLAIN, "x0": Range(0.0, 1.0, prior=0.9)}, DEFAULT),
        ({name: Ordered((1, 2)) for name in PLAIN}, DEFAULT),
        ({name: PLAIN[name] for name in list(PLAIN)[1:]}, DEFAULT),
    ],
    ids=["published", "another strategy", "known results", "the user's expectation", "finite", "few numbers"],
)
def test_others_do_not_prefer_the_center(space: Space, strategy: AnyStrategy) -> None:
    arms = pool(space).arms(strategy, None)
    assert not arms.layout.prefers_center
    has_prior = any(isinstance(one, Range) and one.prior is not None for one in space.values())
    assert (arms.log_prior is not None) == has_prior
