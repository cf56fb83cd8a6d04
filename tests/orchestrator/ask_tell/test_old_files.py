"""orchestrator/ask_tell/old_files.py: pickles that refer to modules by their old names."""

import pickle

import numpy as np
import pytest

from bbkb import CandidateOptimizer

OLD = {  # strategy → old name of a module that its pickle refers to, and the new name
    "gp_threds": (b"bbkb.orchestrator.bandit.strategies.gp_threds", b"bbkb.orchestrator.bandit.papers.gp_threds"),
    "compressed_ei": (b"bbkb.orchestrator.bandit.exact.compressed", b"bbkb.orchestrator.bandit.papers.compressed"),
}


@pytest.mark.parametrize("strategy", OLD)
def test_pickled_optimizer_is_read_by_the_old_names_of_its_modules(strategy: str) -> None:
    arms = np.linspace(0, 1, 20)[:, None]
    optimizer = CandidateOptimizer(arms, strategy=strategy, seed=3)
    for _ in range(4):
        arm = optimizer.ask()
        optimizer.tell(arm, float(arms[arm[0], 0]))
    old, new = OLD[strategy]
    packed = pickle.dumps(optimizer, protocol=0)
    assert new + b"\n" in packed
    loaded = pickle.loads(packed.replace(new + b"\n", old + b"\n"))
    assert loaded.ask().tolist() == optimizer.ask().tolist()


def test_module_that_never_existed_is_not_found() -> None:
    with pytest.raises(ModuleNotFoundError):
        __import__("bbkb.orchestrator.bandit.strategies.unheard_of")
