"""The comparison with the authors' code, with a substitute for it that pulls one arm in growing
batches."""

import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.papers.authors import compare
from benchmarks.papers.calandriello_2020 import method
from benchmarks.papers.campaigns import Comparison, Runs, run_all
from benchmarks.papers.experiment import Request
from objectives.datasets import DataSource
from objectives.tabular import Abalone
from orchestrator.errors import UserError

HORIZON, ARM = 20, 3
UTILS = """
class FastMixinKernel:
    def __init__(self, exact, pairwise):
        assert abs(pairwise.gamma - 0.5 / exact.length_scale**2) < 1e-12
"""
LIBRARY = f"""
import numpy as np
from utils import FastMixinKernel

class Batch_BKB:
    def __init__(self, lam, dot, fnorm, noise_variance, delta, qbar, ratio_threshold):
        assert (lam, fnorm, noise_variance, delta, qbar, ratio_threshold) == (1e-4, 1.0, 1e-4, 1 / {HORIZON}, 2.0, 2.0)
        self.size, self.dict_size_unique = 0, 0

    def initialize(self, arms, indices, rewards):
        assert len(set(indices)) > 1 and len(indices) == len(rewards)

    def predict(self):
        self.size += 1
        return np.full(self.size, {ARM}), None

    def update(self, indices, rewards, state):
        assert len(indices) == len(rewards)
        self.dict_size_unique += 1
"""


@pytest.fixture
def request_(tmp_path: Path, data_folder: Path) -> Request:
    code = tmp_path / "code"
    code.mkdir()
    (code / "bkb_lib.py").write_text(LIBRARY, encoding="utf-8")
    (code / "utils.py").write_text(UTILS, encoding="utf-8")
    return Request(1, HORIZON, ("bbkb",), tmp_path / "out", data=data_folder, authors=code)


@pytest.fixture
def comparison() -> Comparison:
    return Comparison(
        "tiny", {"objective": {"name": "abalone"}}, [method(n, 17.5, HORIZON) for n in ("bbkb", "uniform")]
    )


@pytest.fixture
def our_runs(comparison: Comparison, request_: Request) -> Runs:
    return run_all(comparison, request_)


def test_their_regret_is_that_of_the_arms_they_pull(comparison: Comparison, our_runs: Runs, request_: Request) -> None:
    _, runs = compare(comparison, our_runs, request_)
    target = Abalone().load(DataSource(request_.data)).target[:, 0]
    for ours, theirs in zip(our_runs["bbkb"], runs, strict=True):
        beginning = next(t for t in range(HORIZON) if ours.arms[t] != ours.arms[0]) + 1
        expected = ours.regret[beginning - 1] + (HORIZON - beginning) * (1.0 - target[ARM])
        assert theirs["regret"] == pytest.approx(expected)
        assert (
            theirs["batches"]
            == theirs["dictionary"]
            == min(b for b in range(9) if b * (b + 1) / 2 >= HORIZON - beginning)
        )


def test_a_finished_run_of_theirs_is_kept(comparison: Comparison, our_runs: Runs, request_: Request) -> None:
    _, first = compare(comparison, our_runs, request_)
    assert request_.authors is not None
    shutil.rmtree(request_.authors)
    assert compare(comparison, our_runs, request_)[1] == first


def test_their_modules_do_not_stay_imported(comparison: Comparison, our_runs: Runs, request_: Request) -> None:
    before = list(sys.path)
    compare(comparison, our_runs, request_)
    assert "bkb_lib" not in sys.modules
    assert sys.path == before


def test_a_folder_without_their_code_is_refused(
    comparison: Comparison, our_runs: Runs, request_: Request, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=r"has no bkb_lib\.py"):
        compare(comparison, our_runs, replace(request_, authors=tmp_path))


def test_their_code_has_nothing_to_stand_beside_without_ours(
    comparison: Comparison, our_runs: Runs, request_: Request
) -> None:
    with pytest.raises(UserError, match="bbkb among --methods"):
        compare(comparison, {"uniform": our_runs["uniform"]}, request_)
