"""The tutorials work as written: their files are created, and their commands run in the given
order."""

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bbkb.orchestrator.cli.main import app

REPOSITORY = Path(__file__).parents[1]
# a file's block follows a line with its name and a colon; a block in `sh` is run
STEP = re.compile(r"(?:^`(?P<file>[\w.]+)`:\n\n)?^```(?P<language>\w+)\n(?P<text>.*?)^```", re.DOTALL | re.MULTILINE)


def follow(page: str, folder: Path, monkeypatch: pytest.MonkeyPatch, replace: tuple[str, str] = ("", "")) -> str:
    """Follow a tutorial in `folder`, and return the output of its commands."""
    monkeypatch.chdir(folder)
    printed = ""
    for step in STEP.finditer((REPOSITORY / "docs" / "tutorials" / page).read_text(encoding="utf-8")):
        if step["file"]:
            Path(step["file"]).write_text(step["text"], encoding="utf-8")
        elif step["language"] == "sh":
            for line in step["text"].splitlines():
                command, *arguments = shlex.split(line.replace(*replace) if replace[0] else line)
                assert command == "bbkb", "only our commands are run"
                done = CliRunner().invoke(app, arguments, env={"COLUMNS": "200"})
                assert done.exit_code == 0, f"{line}\n{done.output}\n{done.exception!r}"
                printed += done.output
    return printed


def test_tutorial_first_campaign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    printed = follow("first_campaign.md", tmp_path, monkeypatch)
    for part in ("is valid", "dry run: nothing was written", "30 of 40 done", "--learning_rate", "picture "):
        assert part in printed
    files = {path.name for path in (tmp_path).iterdir()}
    assert files >= {"train.py", "campaign.yaml", "runs", "trials.csv", "curves.html"}


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_tutorial_network_on_a_cluster(tmp_path: Path, ray_cluster: str, monkeypatch: pytest.MonkeyPatch) -> None:
    printed = follow("network_on_a_cluster.md", tmp_path, monkeypatch, ("127.0.0.1:6379", ray_cluster))
    assert "finished" in printed
    assert "--width" in printed
    assert (tmp_path / "runs" / "digits" / "trials" / "000003" / "network.joblib").is_file()
