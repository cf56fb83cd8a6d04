"""The example of docs/guide/distributed.md runs as it is printed, on this machine."""

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from bbkb import load

pytestmark = pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch, which the example trains with, is missing")
REPOSITORY = Path(__file__).parents[1]
PAGE = (REPOSITORY / "docs" / "guide" / "distributed.md").read_text(encoding="utf-8")


def block(language: str) -> str:
    """The only code block of the page in this language."""
    (code,) = re.findall(rf"```{language}\n(.*?)```", PAGE, flags=re.DOTALL)
    return str(code)


@pytest.mark.thorough
def test_example_trains_on_two_machines(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(block("python"))
    (tmp_path / "campaign.yaml").write_text(block("yaml"))
    done = subprocess.run(
        [sys.executable, "-m", "bbkb", "run", "campaign.yaml", "--set", "workers.spread=soft", "--set", "run=one"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=290,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    losses = [trial.value for trial in load(tmp_path / "runs" / "one").trials()]
    assert len(losses) == 4
    assert all(loss is not None and 0.0 < loss < 10.0 for loss in losses)
