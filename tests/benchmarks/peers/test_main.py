"""The command: what it runs, what it resumes, and its messages."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks.peers.__main__ import app
from benchmarks.peers.cache import Cache
from benchmarks.peers.search import Record
from benchmarks.peers.settings import PROBLEMS, problems, strategies
from orchestrator.errors import UserError

SMALL = ["--problems", "branin", "--methods", "random,uniform", "--workers", "2", "--evaluations", "8", "--seeds", "2"]


def test_a_comparison_runs_once_and_is_read_the_second_time(tmp_path: Path) -> None:
    first = CliRunner().invoke(app, [*SMALL, "--out", str(tmp_path)], catch_exceptions=False)
    assert "W = 2, T = 8, branin, uniform, seed 1" in first.output
    lines = (tmp_path / "random.jsonl").read_text()
    again = CliRunner().invoke(app, [*SMALL, "--out", str(tmp_path)], catch_exceptions=False)
    assert "branin, random, seed" not in again.output
    assert (tmp_path / "random.jsonl").read_text() == lines
    assert (tmp_path / "results" / "regret-functions-w2-t8.csv").is_file()
    assert (tmp_path / "results" / "peers-time.png").is_file()


def test_a_report_runs_nothing(tmp_path: Path) -> None:
    CliRunner().invoke(app, [*SMALL, "--out", str(tmp_path), "--report"], catch_exceptions=False)
    assert not list(tmp_path.glob("*.jsonl"))


def test_a_strategy_with_options_is_a_method(tmp_path: Path) -> None:
    arguments = ["--strategy", "wide={name: uniform}", "--out", str(tmp_path)]
    CliRunner().invoke(app, [*SMALL, *arguments], catch_exceptions=False)
    assert Cache(tmp_path, "wide", Record).get("branin", 2, 8, 0) is not None


def test_a_line_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "random.jsonl").write_text("{\n")
    with pytest.raises(UserError, match=r"random.jsonl:1 is not a finished search .* delete that line"):
        Cache(tmp_path, "random", Record)


def test_validity_is_measured_once_and_only_of_strategies_with_a_belief(tmp_path: Path) -> None:
    arguments = ["--validity", "--problems", "branin", "--workers", "2", "--evaluations", "24", "--seeds", "1"]
    ours = [*arguments, "--methods", "bbkb", "--out", str(tmp_path)]
    first = CliRunner().invoke(app, ours, catch_exceptions=False)
    assert "share of arms whose noise-free score is within μ ± 2σ" in first.output
    lines = (tmp_path / "validity" / "bbkb.jsonl").read_text()
    CliRunner().invoke(app, ours, catch_exceptions=False)
    assert (tmp_path / "validity" / "bbkb.jsonl").read_text() == lines
    with pytest.raises(UserError, match="random is not a strategy of this project"):
        CliRunner().invoke(app, [*arguments, "--methods", "random", "--out", str(tmp_path)], catch_exceptions=False)


def test_sets_stand_for_their_problems() -> None:
    assert problems("all") == PROBLEMS
    assert problems("branin,functions")[0] == "branin"
    with pytest.raises(UserError, match=r"--problems must be some of .* did you mean 'branin'"):
        problems("brannin")


def test_a_strategy_needs_a_label_and_a_name() -> None:
    assert strategies(["a={name: bbkb, delta: 0.5}"]) == {"a": {"name": "bbkb", "delta": 0.5}}
    for wrong in ("bbkb", "={name: bbkb}", "a={delta: 1}", "a={"):
        with pytest.raises(UserError, match="--strategy"):
            strategies([wrong])
