"""Any campaign file, content of a store, value returned or raised by an objective, and table gives a result or an
error with a place, never a traceback."""

import contextlib
import copy
import csv
import io
import json
import math
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import strategies as st

from bbkb.objectives.objective import Candidates, Evaluation, ObjectiveError, Parameters, Report
from bbkb.objectives.returned import as_evaluation
from bbkb.objectives.tabular import table_candidates, table_objective
from bbkb.orchestrator.bandit.strategies import STRATEGIES
from bbkb.orchestrator.campaign.events import (
    SessionClosed,
    SessionOutcome,
    TrialFailed,
    TrialStopped,
    TrialSucceeded,
    event_of,
)
from bbkb.orchestrator.campaign.settings import Settings, plain
from bbkb.orchestrator.campaign.status import status_of
from bbkb.orchestrator.engine.engine import Problem
from bbkb.orchestrator.engine.pool import Pool
from bbkb.orchestrator.errors import BbkbError, UserError
from bbkb.orchestrator.history.fold import fold
from bbkb.orchestrator.session.known_results import existing
from bbkb.orchestrator.settings.loading import from_mapping, load
from bbkb.orchestrator.store import snapshots
from bbkb.orchestrator.store.runs import Run
from bbkb.orchestrator.store.store import EventStore, rows_of
from bbkb.orchestrator.store.verify import verify
from bbkb.workers.evaluate import evaluate
from bbkb.workers.messages import Attempt, Limits
from tests.fuzz.examples import check_examples, check_reason, few_or_many, scalars, values
from tests.orchestrator.synthetic_log import SyntheticLog

FILE: dict[str, Any] = {
    "name": "f",
    "seed": 1,
    "objective": {"callable": "math:hypot", "direction": "minimize", "deterministic": True},
    "space": {
        "x": {"low": 1.0e-4, "high": 1.0, "log": True},
        "n": {"low": 1, "high": 9, "integer": True, "when": {"kind": "b"}},
        "kind": {"choices": ["a", "b"]},
        "size": {"ordered": [1, 2, 4]},
        "fixed": {"constant": 3},
    },
    "forbid": [{"kind": "a", "x": {"below": 0.5}}],
    "enqueue": [{"kind": "a", "x": 0.7, "size": 2, "fixed": 3}],
    "candidates": {"size": 64, "sampler": "sobol"},
    "strategy": {"name": "bbkb", "kernel": {"name": "matern", "lengthscale": 0.5}, "regularization": 0.5},
    "budget": {"evaluations": 8, "hours": 1.0, "target": 0.1},
    "workers": {"executor": "simulated", "count": 2, "timeout_seconds": 5, "simulation": {"seconds": 2.0}},
    "early_stopping": {"rule": "asha"},
    "store": "sqlite",
    "runs": "runs",
}


# tags, anchors, merge keys, other line ends, other scripts, depth
FRAGMENTS = [
    "name: f\n", "space: {x: {low: 0, high: 1}}\n", "budget: {evaluations: 3}\n",
    "objective: {callable: 'math:sin'}\n", "a: &a [*a]\n", "b: &b {c: *a}\n", "<<: *b\n", "? [1]\n: 2\n",
    "!!python/name:os.system x: 1\n", "name: !!binary aGk=\n", "seed: !!int x\n", "seed: !!float 1e5\n",
    "seed: 0o17\n", "seed: " + "9" * 5000 + "\n", "x: " + "[" * 300, "x: " + "{a: " * 300, "\ufeff", "\r\n",
    "\r", "\t", "\x00", "\x85", "\u2028", "\ud800", '"\\ud800": 1\n', 'runs: "a\\0b"\n', "---\n", "...\n",
    "%YAML 9.9\n", "store: sqlite://\n", "store: postgresql://[::1\n", "store: ${NO_SUCH}\n", "# ", "- ", ": ",
    "'", '"', "|\n", ">\n", "@", "`",
]  # fmt: skip


def paths(tree: Any, so_far: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the path of a value in the tree, as keys."""
    entries = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    return [so_far, *(path for key, value in entries for path in paths(value, (*so_far, key)))]


@st.composite
def broken_files(draw: st.DrawFn) -> str:
    """A valid file in which some values were changed, removed or added; or any other text."""
    match draw(st.integers(0, 9)):
        case 0:
            return draw(st.text(max_size=200))
        case 1:  # text that only a person or an attacker writes
            return draw(st.lists(st.sampled_from(FRAGMENTS), max_size=8).map("".join))
    tree = copy.deepcopy(FILE)
    for path in draw(st.lists(st.sampled_from(paths(FILE)[1:]), min_size=1, max_size=3)):
        place: Any = tree
        for key in path[:-1]:
            place = place[key] if isinstance(place, dict) and key in place else None
        if not isinstance(place, dict):
            continue
        match draw(st.sampled_from(["replace", "remove", "add"])):
            case "replace":
                place[path[-1]] = draw(values)
            case "remove":
                place.pop(path[-1], None)
            case _:
                place[draw(st.text(max_size=12))] = draw(values)
    return yaml.safe_dump(tree, allow_unicode=True)


@few_or_many
def test_campaign_file_is_read_or_rejected_with_a_reason(tmp_path: Path, examples: int) -> None:
    file = tmp_path / "campaign.yaml"

    def check(text: object) -> None:
        file.write_bytes(str(text).encode("utf-8", "surrogatepass"))
        try:
            settings = load(file)
        except UserError as error:
            check_reason(error)
            return
        assert save_and_load(file, dict(plain(settings))) == plain(settings)

    check_examples(examples, broken_files(), check)


def save_and_load(file: Path, resolved: dict[str, Any]) -> dict[str, Any]:
    """Write the settings and read them again, as a resume does."""
    file.write_text(yaml.safe_dump(resolved, allow_unicode=True), encoding="utf-8")
    return dict(plain(load(file)))


COLUMNS = {
    "bbkb_events": ["position", "epoch", "kind", "body", "checksum"],
    "bbkb_campaigns": ["epoch", "holder", "since", "length", "head", "identity", "stop", "settings", "beats"],
    "bbkb_snapshots": ["position", "head", "version", "body"],
    "bbkb_format": ["format"],
}
CELLS = scalars.filter(lambda it: not isinstance(it, int) or abs(it) < 2**63) | st.binary(max_size=8)
CHANGES = st.sampled_from([(table, column) for table, columns in COLUMNS.items() for column in columns]).flatmap(
    lambda at: st.tuples(st.just(at), st.integers(0, 60), CELLS)
)
FLIPS = st.tuples(st.just("flip"), st.floats(0.0, 1.0), st.integers(0, 255))


@pytest.fixture(scope="module")
def sound_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a sound store with one campaign and its snapshot."""
    file = tmp_path_factory.mktemp("sound") / "campaign.sqlite"
    events = SyntheticLog(trials=12).events()
    store = EventStore(f"sqlite:///{file}")
    store.create("c", events[:1])
    writer = store.claim("c", "me")
    writer.append(events[1:])
    snapshots.save(writer, len(events), fold(events).campaign)
    writer.release()
    store.close()
    return file


def damage(file: Path, change: object) -> None:
    """Change a cell of a row, or a byte of the file."""
    assert isinstance(change, tuple)
    if change[0] == "flip":
        content = bytearray(file.read_bytes())
        content[int(change[1] * (len(content) - 1))] ^= change[2]
        file.write_bytes(content)
        return
    (table, column), number, cell = change
    with contextlib.closing(sqlite3.connect(file)) as raw, contextlib.suppress(sqlite3.Error, UnicodeDecodeError):
        count = raw.execute(f"SELECT COUNT(*) FROM {table}").fetchone()[0]
        if isinstance(cell, str):
            cell = cell.encode("utf-8", "replace").decode()
        query = f"UPDATE {table} SET {column} = ? WHERE rowid = (SELECT rowid FROM {table} LIMIT 1 OFFSET ?)"
        raw.execute(query, (cell, number % max(1, count)))
        raw.commit()


def answer(read: Callable[[], object]) -> object:
    """The result of the call; None for an error of this project, which has a message."""
    try:
        return read()
    except BbkbError as error:
        check_reason(error)
        return None


@few_or_many
def test_damaged_store_is_reported_and_never_misread(tmp_path: Path, sound_file: Path, examples: int) -> None:
    file = tmp_path / "campaign.sqlite"
    expected = EventStore(f"sqlite:///{sound_file}")
    events = [repr(event) for event in expected.read("c")]  # as text: a metric may be NaN
    expected.close()

    def check(changes: object) -> None:
        for old in tmp_path.glob("campaign.sqlite*"):
            old.unlink()
        shutil.copy(sound_file, file)
        assert isinstance(changes, list)
        for change in changes:
            damage(file, change)
        run = Run(tmp_path, file, "c")
        decoded = answer(lambda: [repr(event) for event in run.events()])
        assert decoded is None or (isinstance(decoded, list) and decoded == events[: len(decoded)])

        def status() -> object:
            with run.store() as store:
                return status_of(snapshots.current(run, store))

        answer(status)

        def audit() -> object:
            with run.store() as store:
                return str(verify(store, "c"))

        answer(audit)

    check_examples(examples, st.lists(CHANGES | FLIPS, min_size=1, max_size=3), check)


@few_or_many
def test_event_body_is_decoded_or_rejected(examples: int) -> None:
    bodies: dict[str, Any] = {}
    for event in SyntheticLog(trials=6).events():
        (row,) = rows_of("c", 1, 0, [event], 0)
        bodies.setdefault(event.kind, json.loads(row.body))
    kinds = sorted(bodies)
    changed = st.tuples(st.sampled_from(kinds), st.text(max_size=10), values, st.booleans())

    def check(example: object) -> None:
        assert isinstance(example, tuple)
        kind, key, value, is_known = example
        body = bodies[kind]
        name = sorted(body)[len(key) % len(body)] if is_known else key
        text = json.dumps({**body, name: value})
        with contextlib.suppress(ValueError):
            event = event_of(kind, text.encode("utf-8", "surrogatepass"))
            assert event.kind == kind

    check_examples(examples, changed, check)


class Hostile:
    """Fails at every operation."""

    def __getattr__(self, name: str) -> object:
        raise RuntimeError(name)

    def __float__(self) -> float:
        raise KeyboardInterrupt

    def __repr__(self) -> str:
        raise SystemExit(3)

    def __str__(self) -> str:
        raise RecursionError


class Endless(dict[Any, Any]):
    """A mapping with inconsistent methods."""

    def items(self) -> Any:
        raise ValueError("\ud800 no text")

    def __iter__(self) -> Iterator[Any]:
        return iter(["value", 3, None])


class Raised(BaseException):
    """An exception of an objective; its message is any text."""


ODDITIES: list[Any] = [
    Hostile(), Endless(value=1.0), np.float32(0.5), np.array(2.0), np.array([1.0, 2.0]),
    np.bool_(True), 1j, Decimal("NaN"), Decimal("1e400"), Fraction(1, 3), b"1", bytearray(b"x"),
    object(), type, 10**5000, -0.0, math.nan, math.inf, "0.5", np.datetime64("now"), {1, 2},
    range(3), iter([1]), memoryview(b"x"),
]  # fmt: skip
# by number, since a failing example is shown
ODD = st.integers(0, len(ODDITIES) - 1).map(lambda number: ("odd", number))
ACTED = st.tuples(
    st.sampled_from(["return", "raise", "evaluation"]),
    ODD | values | st.dictionaries(st.text(max_size=8) | ODD, ODD | values, max_size=4),
    st.booleans(),
    st.text(max_size=40),
)


def resolve(example: Any) -> Any:
    """The example with the objects themselves instead of their numbers."""
    match example:
        case ("odd", int() as number):
            return ODDITIES[number]
        case dict():
            return {resolve(key) if is_hashable(resolve(key)) else "key": resolve(example[key]) for key in example}
        case _:
            return example


def is_hashable(value: Any) -> bool:
    """Return whether the value can be a key of a mapping."""
    return type(value).__hash__ is not None


class Objective:
    """An objective that acts as an example specifies."""

    def __init__(self, acted: tuple[str, Any, bool, str]) -> None:
        self.how, what, has_value, self.text = acted
        self.what = resolve(what)
        if has_value:
            self.what = {**(self.what if type(self.what) is dict else {"other": self.what}), "value": 1.0}

    def evaluate(self, parameters: Parameters, seed: int, report: Report) -> Evaluation:
        report(self.what, seed)
        if self.how == "raise":
            raise Raised(self.text, self.what)
        if self.how == "evaluation":
            return Evaluation(self.what, self.what)
        return as_evaluation(self.what, self.text)


@few_or_many
def test_attempt_has_an_outcome_that_can_be_stored(tmp_path: Path, examples: int) -> None:
    store = EventStore(f"sqlite:///{tmp_path / 'c.sqlite'}")
    store.create("c", [SessionClosed(time=0.0, outcome=SessionOutcome.FINISHED, reason="")])
    writer = store.claim("c", "test")
    outcomes: list[TrialFailed | TrialSucceeded] = []

    def check(acted: Any) -> None:
        outcome = evaluate(Objective(acted), Attempt(0, 0, {}, 1), Limits())
        assert not isinstance(outcome, TrialStopped)
        assert isinstance(outcome, TrialFailed) or math.isfinite(outcome.value)
        outcomes.append(outcome)

    check_examples(examples, ACTED, check)
    writer.append(outcomes)
    # as texts, because a report may hold NaN, which differs from itself
    assert [repr(event) for event in store.read("c", after=1)] == [repr(outcome) for outcome in outcomes]
    store.close()


TABLE_CELLS = (
    st.text(max_size=12)
    | st.integers().map(str)
    | st.floats().map(repr)
    | st.sampled_from(
        ["", " ", "1", "0.5", "nan", "1e999", "9" * 400, "1_0", "٣", "x\ny", '"', "=1+1", "\x00", "\ufeff"]
    )
)
NUMBERS = st.integers(-5, 5).map(str) | st.floats(-2, 2).map(repr)
NAMES = st.sampled_from(["x", "y", "reward", "arm", "row", "x"]) | TABLE_CELLS
SPACE = Candidates(np.linspace(0.0, 1.0, 6)[:, None], {"x": np.arange(6)})


@st.composite
def tables(draw: st.DrawFn) -> bytes:
    """A table of a few columns, some with invalid values and some of different lengths; or any
    bytes."""
    if draw(st.integers(0, 9)) == 0:
        return draw(st.binary(max_size=200))
    width = draw(st.integers(1, 4))
    column = st.lists(NUMBERS if draw(st.booleans()) else NUMBERS | TABLE_CELLS, min_size=width, max_size=width)
    rows = draw(st.lists(column, max_size=8))
    if rows and draw(st.integers(0, 4)) == 0:
        rows[-1] = draw(st.lists(TABLE_CELLS, max_size=6))
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
