"""The page of short measurements of speed (`benchmarks.bench`)."""

from pathlib import Path

import pytest

from benchmarks import bench
from benchmarks.bench import CommandMeasurement, Measurement, Seconds, main
from orchestrator.errors import BbkbError, UserError

SHORT = Measurement("a short search", "defaults", {"arms": 64, "workers": 2, "horizon": 4})


def test_row_has_medians_their_ratio_and_whether_the_picks_are_equal() -> None:
    taken = [(Seconds(2.0, "a"), Seconds(1.0, "a")), (Seconds(3.0, "a"), Seconds(2.0, "a"))]
    assert bench._row("search", taken, 2) == "| search | 2.5 | 1.5 | 1.75 | equal |"
    taken.append((Seconds(3.0, "b"), Seconds(2.0, "a")))
    assert bench._row("search", taken, 2).endswith("| differ |")
    assert bench._row("search", [(Seconds(0.5),)], 1) == "| search | 0.5 |"


@pytest.mark.thorough
def test_page_names_the_machine_and_says_which_data_are_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "MEASUREMENTS", (SHORT, Measurement("data", "ours", {}, "cadata")))
    monkeypatch.setattr(bench, "COMMANDS", (CommandMeasurement("help", "uniform", 0, ("--help",)),))
    main(repeats=1, data=None, out=tmp_path / "page.md")
    page = (tmp_path / "page.md").read_text()
    assert "one BLAS thread" in page
    assert "| a short search | 0." in page
    assert "| data | no data: name their folder with `--data` |" in page
    assert "| help | " in page


def test_commit_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--base must be a commit of this repository, got nowhere"):
        main(base="nowhere", out=tmp_path / "page.md")


@pytest.mark.slow
def test_measurement_that_fails_says_why() -> None:
    with pytest.raises(BbkbError, match=r"unexpected keyword"):
        bench._measure(Measurement("wrong", "defaults", {"nothing": 1}), bench._HERE, None)
