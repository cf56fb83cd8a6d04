"""A notebook shows progress, results and optimizers: a real kernel runs the cells."""

from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

CELLS = (
    """
from bbkb import Optimizer, Range, tune
target = 0.3
result = tune(lambda x: (x - target) ** 2, {"x": Range(0.0, 1.0)}, evaluations=4, direction="minimize",
              settings={"workers": {"executor": "inline"}})
""",
    "result",
    """
optimizer = Optimizer(space={"x": Range(0.0, 1.0)}, direction="minimize")
optimizer.tell(optimizer.ask(2), [0.5, 0.25])
optimizer
""",
    """
optimizer = Optimizer([[0.0], [0.5], [1.0]])
optimizer.tell([1], [0.75])
optimizer
""",
)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning", "ignore::RuntimeWarning")
@pytest.mark.thorough
def test_a_notebook_shows_progress_and_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    v4: Any = nbformat.v4  # it has no annotations
    notebook = v4.new_notebook(cells=[v4.new_code_cell(source) for source in CELLS])
    client = NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}})
    client.execute()
    progress, *shown = [cell.outputs for cell in notebook.cells]
    assert "4/4" in "".join(text_of(output) for output in progress)
    for outputs, part in zip(shown, ("4 finished", "0.25", "0.75"), strict=True):
        assert part in outputs[-1]["data"]["text/html"]


def text_of(output: dict[str, Any]) -> str:
    """What a cell printed, or drew."""
    return str(output.get("text", "")) + str(output.get("data", {}).get("text/plain", ""))
