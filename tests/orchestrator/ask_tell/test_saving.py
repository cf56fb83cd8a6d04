"""Files of `save`: damaged and hostile files are rejected or harmless."""

import base64
import contextlib
import copy
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bbkb import CandidateOptimizer, Choice, Optimizer, Range
from bbkb.objectives.parameters import Parameter

ODD: tuple[Any, ...] = (None, -1, 10**400, 0.5, "", "m:X", [], [[]], {}, {"name": "m:X"}, True, [None], "\ud800")
STRATEGY = """
from dataclasses import dataclass
from pathlib import Path
from bbkb.orchestrator.bandit.strategies.uniform import Uniform

Path(__file__).with_name("executed").touch()

@dataclass(frozen=True)
class Mine(Uniform):
    pass
"""


def saved(folder: Path, kind: type[Optimizer] | type[CandidateOptimizer], has_checksum: bool = False) -> Path:
    optimizer: Optimizer | CandidateOptimizer
    if kind is Optimizer:
        space: dict[str, Parameter] = {"x": Range(1, 3, integer=True), "c": Choice(("a", "b"))}
        optimizer = Optimizer(space, "maximize", enqueue=[{"x": 2, "c": "a"}])
        asked = optimizer.ask(1) + optimizer.ask(1)
        optimizer.tell(asked, [0.25, 0.5])
    else:
        optimizer = CandidateOptimizer(np.linspace(0.0, 1.0, 6)[:, None])
        optimizer.tell([0, 3], [0.25, 0.5])
    file = folder / "saved.json"
    optimizer.save(file)
    if not has_checksum:
        content = json.loads(file.read_text())
        del content["checksum"]
        file.write_text(json.dumps(content))
    return file


def places(tree: Any, keys: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of each value in plain values."""
    if keys:
        yield keys
    if isinstance(tree, dict | list):
        for key in tree if isinstance(tree, dict) else range(len(tree)):
            yield from places(tree[key], (*keys, key))


@pytest.mark.parametrize("kind", [Optimizer, CandidateOptimizer])
def test_saved_file_with_any_value_loads_or_raises_a_value_error(tmp_path: Path, kind: Any) -> None:
    file = saved(tmp_path, kind)
    whole = json.loads(file.read_text())
    for number, keys in enumerate(places(whole)):
        changed = copy.deepcopy(whole)
        node = changed
        for key in keys[:-1]:
            node = node[key]
        node[keys[-1]] = ODD[number % len(ODD)]
        file.write_text(json.dumps(changed))
        with contextlib.suppress(ValueError):
            kind.load(file)


@pytest.mark.parametrize("kind", [Optimizer, CandidateOptimizer])
def test_damaged_file_is_never_loaded_as_another_search(tmp_path: Path, kind: Any) -> None:
    file = saved(tmp_path, kind, has_checksum=True)
    content, trials = file.read_bytes(), kind.load(file).trials
    for place in range(0, len(content), 5):
        file.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        with contextlib.suppress(ValueError):
            assert kind.load(file).trials == trials


@pytest.mark.parametrize("kind", [Optimizer, CandidateOptimizer])
def test_deep_nesting_is_a_value_error(tmp_path: Path, kind: Any) -> None:
    (tmp_path / "deep.json").write_text('{"format": 1, "space": ' + "[" * 100_000 + "]" * 100_000 + "}")
    with pytest.raises(ValueError, match="is not a saved"):
        kind.load(tmp_path / "deep.json")


def test_huge_array_long_text_and_unknown_arm_are_short_value_errors(tmp_path: Path) -> None:
    file = saved(tmp_path, CandidateOptimizer)
    optimizer = CandidateOptimizer.load(file)
    optimizer.ask(1)
    optimizer.save(file)
    whole = json.loads(file.read_text())
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (10000000000000, 1)}"
    huge = b"\x93NUMPY\x01\x00" + (len(header) + 1).to_bytes(2, "little") + header + b"\n"
    unknown_arm = json.loads(json.dumps(whole["log"]))
    refreshed = next(body for kind, body in unknown_arm if kind == "model_refreshed")
    refreshed["record"]["initial"] = [0, 10**30]
    for changed in (
        {"arms": {**whole["arms"], "features": base64.b64encode(huge).decode()}},
        {"log": [["a" * 100_000, {}]]},
        {"log": unknown_arm},
    ):
        file.write_text(json.dumps({**whole, **changed}))
        with pytest.raises(ValueError, match="is not a saved CandidateOptimizer") as refused:
            CandidateOptimizer.load(file)
        assert len(str(refused.value)) < 2000


def test_users_strategy_is_imported_only_if_the_caller_allows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    (tmp_path / "strategy_in_a_file.py").write_text(STRATEGY)
    file = saved(tmp_path, Optimizer)
    whole = json.loads(file.read_text())
    file.write_text(json.dumps({**whole, "strategy": {"name": "strategy_in_a_file:Mine"}, "log": []}))
    with pytest.raises(ValueError, match=r"runs the code of strategy_in_a_file: import .* or pass run_code=True"):
        Optimizer.load(file)
    assert not (tmp_path / "executed").exists()
    assert Optimizer.load(file, run_code=True).ask(1)
    assert (tmp_path / "executed").exists()
    assert Optimizer.load(file).ask(1)  # it is imported now
    monkeypatch.delitem(sys.modules, "strategy_in_a_file")


def test_load_rejects_a_pipe_instead_of_waiting_for_its_end(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(ValueError, match="it is not a regular file"):
            Optimizer.load(path)
