"""Any table becomes candidates or an error that names the file, never a traceback."""

import csv
import io
from pathlib import Path

import numpy as np
from hypothesis import strategies as st

from bbkb.objectives.objective import Candidates, ObjectiveError
from bbkb.objectives.tabular import table_candidates, table_objective
from bbkb.orchestrator.bandit.strategies import STRATEGIES
from bbkb.orchestrator.campaign.settings import Settings
from bbkb.orchestrator.engine.engine import Problem
from bbkb.orchestrator.engine.pool import Pool
from bbkb.orchestrator.errors import UserError
from bbkb.orchestrator.session.known_results import existing
from bbkb.orchestrator.settings.loading import from_mapping
from tests.fuzz.examples import check_examples, check_reason, few_or_many

CELLS = (
    st.text(max_size=12)
    | st.integers().map(str)
    | st.floats().map(repr)
    | st.sampled_from(
        ["", " ", "1", "0.5", "nan", "1e999", "9" * 400, "1_0", "٣", "x\ny", '"', "=1+1", "\x00", "\ufeff"]
    )
)
NUMBERS = st.integers(-5, 5).map(str) | st.floats(-2, 2).map(repr)
NAMES = st.sampled_from(["x", "y", "reward", "arm", "row", "x"]) | CELLS
SPACE = Candidates(np.linspace(0.0, 1.0, 6)[:, None], {"x": np.arange(6)})


@st.composite
def tables(draw: st.DrawFn) -> bytes:
    """A table of a few columns, some with invalid values and some of different lengths; or any
    bytes."""
    if draw(st.integers(0, 9)) == 0:
        return draw(st.binary(max_size=200))
    width = draw(st.integers(1, 4))
    column = st.lists(NUMBERS if draw(st.booleans()) else NUMBERS | CELLS, min_size=width, max_size=width)
    rows = draw(st.lists(column, max_size=8))
    if rows and draw(st.integers(0, 4)) == 0:
        rows[-1] = draw(st.lists(CELLS, max_size=6))
    file = io.StringIO(newline="")
    csv.writer(file).writerows([draw(st.lists(NAMES, min_size=width, max_size=width)), *rows])
    return file.getvalue().encode("utf-8", "surrogatepass")


def known(table: Path) -> Settings:
    """A campaign that knows the results of a table."""
    tree = {"name": "c", "objective": {"name": "branin", "direction": "maximize"}, "budget": {"evaluations": 3}}
    return from_mapping({**tree, "known_results": [{"table": str(table)}]})


@few_or_many
def test_table_becomes_candidates_or_is_rejected_with_a_reason(tmp_path: Path, examples: int) -> None:
    path = tmp_path / "t.csv"

    def check(content: object) -> None:
        assert isinstance(content, bytes)
        path.write_bytes(content)
        try:
            candidates = table_candidates(path)
        except ObjectiveError as error:
            check_reason(error)
        else:
            assert np.isfinite(candidates.features).all()
            assert candidates.parameters(len(candidates) - 1)
        try:
            table = table_objective(path, "y")
        except ObjectiveError as error:
            check_reason(error)
        else:
            assert np.isfinite(table.evaluate({"row": 0}, 1, lambda value, step=None, **_: None).value)
        try:
            taken = existing(known(path), Problem(0, Pool(SPACE), STRATEGIES["uniform"]()))
        except (ObjectiveError, UserError) as error:
            check_reason(error)
        else:
            assert taken is not None
            assert np.isfinite(taken.values).all()

    check_examples(examples, tables(), check)
