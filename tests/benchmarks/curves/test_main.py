"""The command runs missing searches, keeps finished ones, and writes tables."""

import json
from pathlib import Path

import pytest

from benchmarks.curves.__main__ import main
from objectives.datasets import DataSource
from orchestrator.errors import UserError


def run(source: DataSource, out: Path, **changes: object) -> None:
    arguments: dict[str, object] = {
        "problems": "taskset-0,taskset-2",
        "methods": "random,random-asha,dense",
        "workers": "2",
        "trainings": "2",
        "seeds": 2,
        "out": out,
        "data": source.folder,
        "report": False,
    }
    main(**{**arguments, **changes})  # type: ignore[arg-type]


def test_a_repeated_call_runs_no_search_again(source: DataSource, tmp_path: Path) -> None:
    run(source, tmp_path)
    first = (tmp_path / "dense.jsonl").read_text(encoding="utf-8")
    assert len(first.splitlines()) == 4
    run(source, tmp_path, report=True)
    assert (tmp_path / "dense.jsonl").read_text(encoding="utf-8") == first
    findings = json.loads((tmp_path / "results" / "findings.json").read_text(encoding="utf-8"))
    assert [table["name"] for table in findings["tables"]] == [
        "curves-taskset-2-trainings-2-workers",
        "curves-taskset-2-trainings-2-workers-paired",
        "curves-ratios",
    ]


def test_processes_give_the_same_searches(source: DataSource, tmp_path: Path) -> None:
    run(source, tmp_path / "one", methods="random-asha", base="random-asha")
    run(source, tmp_path / "two", methods="random-asha", base="random-asha", processes=2)

    def regrets(folder: Path) -> list[object]:
        lines = (folder / "random-asha.jsonl").read_text(encoding="utf-8").splitlines()
        return [json.loads(line)["regrets"] for line in lines]

    assert regrets(tmp_path / "one") == regrets(tmp_path / "two")


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("problems", "taskset-9", "--problems must be families"),
        ("workers", "0", "--workers must be whole numbers > 0"),
        ("methods", "asha", "--methods must be some of"),
    ],
)
def test_a_mistake_is_named(source: DataSource, tmp_path: Path, option: str, value: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        run(source, tmp_path, **{option: value})


def test_a_campaign_is_kept_too(source: DataSource, tmp_path: Path) -> None:
    run(source, tmp_path, problems="taskset-0", methods="bbkb-model", base="bbkb-model", trainings="4", seeds=1)
    record = json.loads((tmp_path / "bbkb-model.jsonl").read_text(encoding="utf-8"))
    assert record["held"] <= record["forecasts"]
