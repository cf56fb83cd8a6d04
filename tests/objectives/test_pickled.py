"""Functions that are pickled by value: their equality, what they take along; values as codes and features."""

import functools
import importlib
import math
import os
import pickle
import subprocess
import sys
import sysconfig
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest
from ConfigSpace.hyperparameters.hp_components import UnitScaler
from hypothesis import given, settings
from hypothesis import strategies as st

from bbkb.objectives import coding, pickled
from bbkb.objectives.objective import ObjectiveError
from bbkb.objectives.parameters import Choice, Parameter, Range
from bbkb.objectives.pickled import code_digest, draft_function
from tests.objectives.random_spaces import discrete, parameters


def scaled(factor: float) -> Callable[[float], float]:
    def objective(x: float) -> float:
        return sum(factor * x for _ in range(3)) + (x in {1, 2, 3})

    return objective


def compiled(text: str) -> Callable[[float], float]:
    namespace: dict[str, Callable[[float], float]] = {}
    exec(text, namespace)  # as a script is compiled again when it runs again
    return namespace["f"]


class Squared:
    def __call__(self, x: float) -> float:
        return x * x


def test_function_equals_its_unpickled_copy_and_its_copy_at_another_line() -> None:
    for function in (scaled(2.0), functools.partial(scaled(2.0)), Squared(), abs):
        assert code_digest(function) == code_digest(cloudpickle.loads(cloudpickle.dumps(function)))
    moved = "import math\n\n\ndef f(x):\n    return x + 1"
    assert code_digest(compiled("def f(x): return x + 1")) == code_digest(compiled(moved))


def test_function_with_other_instructions_constants_or_names_differs() -> None:
    nested = "def f(x):\n    def g(y):\n        return y + {}\n    return g(x)\n"
    texts = [
        "def f(x): return x + 1",
        "def f(x): return x + 2",
        "def f(x): return x + 1.0",
        "def f(x): return x - 1",
        "def f(x): return g(x) + 1",
        "def f(x): return [x + 1 for y in x]",
        "def f(y): return y + 1",
        nested.format(1),
        nested.format(2),
    ]
    assert len({code_digest(compiled(text)) for text in texts}) == len(texts)


@pytest.fixture
def everything_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pickled, "LARGE_BYTES", 100)


def test_traceback_of_an_unpickled_function_names_the_lines_of_its_script(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("def f(x):\n    return g(x)\n\n\ndef g(x):\n    return 1 / x\n")
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(script.read_text(), script, "exec"), namespace)
    draft = draft_function(namespace["f"], tmp_path)
    with pytest.raises(ZeroDivisionError) as caught:
        draft.write().function()(0.0)
    _, *frames = traceback.extract_tb(caught.tb)
    lines = [(frame.filename, frame.lineno, frame.line) for frame in frames]
    assert lines == [(str(script), 2, "return g(x)"), (str(script), 6, "return 1 / x")]
    script.unlink()  # as the file of a notebook's cell, which has another name in each kernel
    assert str(script).encode() in draft.content
    assert str(script).encode() not in draft_function(namespace["f"], tmp_path).content


def test_function_is_loaded_with_the_folders_that_the_program_has_added(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "module_of_a_program.py").write_text("def double(x):\n    return 2 * x\n")
    double = importlib.import_module("module_of_a_program").double
    options = draft_function(double, tmp_path).write()
    monkeypatch.delitem(sys.modules, "module_of_a_program")
    monkeypatch.setattr(sys, "path", [folder for folder in sys.path if folder != str(tmp_path)])
    assert options.function()(2) == 4
    known = {sysconfig.get_path(name) for name in ("stdlib", "purelib")}
    assert not known.intersection(options.search_paths)


def test_function_that_is_sent_with_its_content_needs_no_file(tmp_path: Path) -> None:
    function = draft_function(functools.partial(math.hypot, 3.0), tmp_path).write()
    sent = function.with_content()
    Path(function.path).unlink()
    arrived = pickle.loads(pickle.dumps(sent, protocol=5))
    assert arrived.function()(4.0) == 5.0
    with pytest.raises(ObjectiveError, match="restore the file"):
        function.function()


def test_large_objects_pickled_with_a_function_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pickled, "LARGE_BYTES", 100_000)
    table, small = np.zeros(50_000), np.zeros(10)
    with pytest.warns(UserWarning, match=r"takes 0 MB .* along, .*: table \(0 MB\); let the function load them"):
        draft_function(lambda x: x + table[0] + small[0], tmp_path / "functions").write()
    with pytest.warns(UserWarning, match=r": argument 1 \(0 MB\);"):
        draft_function(functools.partial(max, table), tmp_path / "functions").write()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        draft_function(lambda x: x + small[0], tmp_path / "functions").write()


@pytest.mark.usefixtures("everything_is_large")
def test_large_function_with_a_variable_that_has_no_value_is_pickled(tmp_path: Path) -> None:
    def objective(x: float) -> float:
        return x if x < 1.0 else later

    if not tmp_path.exists():
        later = 1.0
    with pytest.warns(UserWarning, match="takes 0 MB"):
        assert Path(draft_function(objective, tmp_path / "functions").write().path).exists()


@pytest.mark.usefixtures("everything_is_large")
def test_large_pickles_that_no_run_names_are_removed_when_they_are_old(tmp_path: Path) -> None:
    folder = tmp_path / "functions"
    folder.mkdir()
    for name in ("needed", "unneeded", "new", "small"):
        (folder / f"{name}.pkl").write_bytes(bytes(10 if name == "small" else 1000))
        if name != "new":
            os.utime(folder / f"{name}.pkl", (1.0, 1.0))
    (tmp_path / "run").mkdir()
    run = tmp_path / "run" / "campaign.yaml"
    run.write_bytes(b"\xff")
    with pytest.warns(UserWarning, match="takes 0 MB"):
        draft_function(lambda x: x, folder).write()
    assert len(list(folder.glob("*.pkl"))) == 5, "a run that cannot be read may need any of them"
    run.write_text("objective: {function: /old/place/needed.pkl}")
    with pytest.warns(UserWarning, match="takes 0 MB"):
        draft_function(lambda x: x + 1, folder).write()
    assert {"needed.pkl", "new.pkl", "small.pkl"} < {path.name for path in folder.glob("*.pkl")}
    assert not (folder / "unneeded.pkl").exists()


@pytest.mark.filterwarnings("ignore:.*takes 0 MB")
@pytest.mark.usefixtures("everything_is_large")
def test_pickle_that_is_used_again_counts_as_new(tmp_path: Path) -> None:
    """No run names the file yet when another program removes old files."""
    again = functools.partial(max, 0.0)
    path = Path(draft_function(again, tmp_path / "functions").write().path)
    os.utime(path, (1.0, 1.0))
    draft_function(again, tmp_path / "functions").write()
    draft_function(lambda x: x + 1, tmp_path / "functions").write()
    assert path.exists()


SCRIPT = """
import json, multiprocessing, sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from bbkb.objectives.pickled import draft_function
from dataclasses import asdict

def square(v):
    return v * v

def pool(x):
    with multiprocessing.get_context("fork").Pool(2) as pool:
        return sum(pool.map(square, [x, x]))

def executor(x):
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("fork")) as executor:
        return sum(executor.map(square, [x, x]))

def spawned(x):
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return sum(pool.map(square, [x, x]))

if __name__ == "__main__":
    for function in (pool, executor, spawned):
        print(json.dumps(asdict(draft_function(function, Path.cwd()).write())))
"""
OTHER = """
import json, sys
from bbkb.objectives.pickled import PickledFunction

if __name__ == "__main__":
    for line in sys.stdin:
        options = json.loads(line)
        function = PickledFunction(options["path"], options["sha256"], options["code"], tuple(options["search_paths"]))
        print(function.evaluate({"x": 3.0}, 0, lambda *_, **__: None).value)
"""


def test_pool_over_a_function_of_the_script_works_in_another_process(tmp_path: Path) -> None:
    def output_of(name: str, source: str, given: str = "") -> str:
        (tmp_path / name).write_text(source)
        command = [sys.executable, name]
        return subprocess.run(command, cwd=tmp_path, input=given, check=True, stdout=subprocess.PIPE, text=True).stdout

    assert output_of("other.py", OTHER, output_of("script.py", SCRIPT)).split() == ["18.0"] * 3


@given(parameters, st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_values_and_codes_are_each_others_inverse(parameter: Parameter, positions: list[float]) -> None:
    values = coding.values(parameter, coding.draw(parameter, np.array(positions)))
    codes = coding.encode(parameter, values)
    again = coding.values(parameter, codes)
    if coding.is_real(parameter):
        np.testing.assert_allclose(again.astype(float), values.astype(float), rtol=1e-9)
    else:
        assert again.tolist() == values.tolist()
    np.testing.assert_array_equal(coding.encode(parameter, values), codes)
    for value, code in zip(values.tolist(), codes, strict=True):
        assert coding.code_of(parameter, value) == code


@given(discrete)
def test_codes_reach_all_values_and_are_distinct_when_spread(parameter: Parameter) -> None:
    codes = coding.draw(parameter, np.linspace(0, 1, 20_001))
    assert set(codes) == set(range(int(coding.count(parameter))))
    few = coding.spread_codes(parameter, 3)
    assert 1 <= len(set(few)) == len(few) <= 3
    assert {few[0], few[-1]} == {0.0, coding.count(parameter) - 1.0}


def test_steps_are_decimal() -> None:
    values = coding.values(Range(0, 1, step=0.05), np.arange(21.0))
    assert values.tolist() == [round(0.05 * k, 2) for k in range(21)]
    assert 0.15 in values.tolist()


@given(st.floats(1e-9, 1e6), st.floats(1.5, 1e9), st.booleans())
@settings(deadline=None)
def test_bounds_keep_their_written_values(low: float, factor: float, is_log: bool) -> None:
    bounds = [low, low * factor]
    real = Range(bounds[0], bounds[1], log=is_log)
    assert coding.values(real, np.array([0.0, 1.0])).tolist() == bounds
    assert coding.values(real, coding.encode(real, np.array(bounds))).tolist() == bounds


def test_weights_determine_the_shares_of_draws() -> None:
    codes = coding.draw(Choice(("a", "b"), weights=(3.0, 1.0)), np.linspace(0, 1, 1000, endpoint=False))
    assert np.bincount(codes.astype(int)).tolist() == [750, 250]


@pytest.mark.parametrize(
    ("parameter", "value", "rule"),
    [
        (Range(0, 1), 1.5, "must be from 0 to 1, got 1.5"),
        (Range(0, 1), "x", "must be a number, got 'x'"),
        (Range(0, 4, integer=True), 1.5, "must be a whole number, got 1.5"),
        (Range(0, 1, step=0.25), 0.3, "must be 0 plus steps of 0.25, got 0.3"),
        (Choice(("a", "b")), "c", "must be one of 'a', 'b', got 'c'"),
    ],
)
def test_value_that_a_parameter_cannot_take_is_rejected(parameter: Parameter, value: object, rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        coding.code_of(parameter, value)


@pytest.mark.parametrize(("low", "high", "log"), [(0.0, 1.0, False), (-3.0, 7.1, False), (1e-7, 0.3, True)])
def test_scale_of_a_range_equals_that_of_configspace(low: float, high: float, log: bool) -> None:
    parameter = Range(low, high, log=log)
    reference = UnitScaler(np.float64(low), np.float64(high), np.float64, log=log)
    positions = np.random.default_rng(0).random(200)
    values = reference.to_value(positions)
    np.testing.assert_array_equal(coding.values(parameter, positions), values)
    np.testing.assert_array_equal(coding.encode(parameter, values), reference.to_vector(values))
