"""A notebook shows progress, results and optimizers: a real kernel runs the cells."""

from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

CELLS = (
    """
from bbkb import CandidateOptimizer, Optimizer, Range, tune
target = 0.3
result = tune(lambda x: (x - target) ** 2, {"x": Range(0.0, 1.0)}, evaluations=18, direction="minimize",
              executor="inline")
""",
    "result",
    "result.plot()",
    "result.plot_parallel()",
    "result.plot_importance()",
    """
optimizer = Optimizer(space={"x": Range(0.0, 1.0)}, direction="minimize")
optimizer.tell(optimizer.ask(2), [0.5, 0.25])
optimizer
""",
    """
optimizer = CandidateOptimizer([[0.0], [0.5], [1.0]])
optimizer.tell([1], [0.75])
optimizer
""",
)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning", "ignore::RuntimeWarning")
@pytest.mark.thorough
def test_notebook_shows_progress_and_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    v4: Any = nbformat.v4  # it has no annotations
    notebook = v4.new_notebook(cells=[v4.new_code_cell(source) for source in CELLS])
    client = NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}})
    client.execute()
    progress, table, *shown = [cell.outputs for cell in notebook.cells]
    assert len(progress) == 1  # one output that is updated in place
    bar = progress[0]["data"]["text/html"]
    assert "<progress value='18' max='18'></progress> 18/18 done, best " in bar
    assert "(minimized)" in bar
    assert "18 of 18 (18 succeeded" in table[-1]["data"]["text/html"]
    assert "/report.html' target='_blank'>report</a>" in table[-1]["data"]["text/html"]
    for outputs, trace in zip(shown[:3], ("scatter", "parcoords", "bar"), strict=True):
        assert outputs[-1]["data"]["application/vnd.plotly.v1+json"]["data"][0]["type"].startswith(trace)
    for outputs, part in zip(shown[3:], ("0.25", "0.75"), strict=True):
        assert part in outputs[-1]["data"]["text/html"]
