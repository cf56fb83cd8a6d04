"""Suggestions, saved files and pickles of version 0.2.0: the same calls give the same suggestions.

Searches over the rows of an array were recorded again when the calibrated strategies stopped
repeating exact values. Searches over spaces with choices were recorded again when coverage began to
pick uncertain candidates.
"""

import gzip
import json
import pickle
from typing import Any

import pytest

from bbkb import CandidateOptimizer, Optimizer
from tests.orchestrator.ask_tell.courses import COURSES, RECORDED, SAVED

SUGGESTIONS = json.loads((RECORDED / "suggestions.json").read_text())


def build(kind: str, *arguments: Any, **options: Any) -> Any:
    maker: Any = CandidateOptimizer if kind == "rows" else Optimizer
    return maker(*arguments, **options)


def facts(optimizer: Any) -> Any:
    """Return the recorded facts of an optimizer after its course, as JSON values."""
    best, trials = optimizer.best, optimizer.trials
    if isinstance(optimizer, CandidateOptimizer):
        told = [[trial.parameters["candidate"], trial.value] for trial in trials]
        best_pair = [best.parameters["candidate"], best.value]
        return {"trials": told, "pending": optimizer.pending.tolist(), "best": best_pair}
    told = [[trial.parameters, dict(trial.metrics) or trial.value] for trial in trials]
    front = None
    if best.metrics:  # version 0.2.0 returned no metrics of constraints
        recorded = [{name: each.metrics[name] for name in ("gain", "cost")} for each in optimizer.front]
        front = [[each.parameters, metrics] for each, metrics in zip(optimizer.front, recorded, strict=True)]
    plain = {"trials": told, "pending": optimizer.pending, "paused": optimizer.paused}
    return {**plain, "best": [best.parameters, best.value], "front": front}


@pytest.mark.parametrize("name", list(COURSES))
def test_suggestions_are_those_of_version_0_2_0(name: str) -> None:
    make, call, options, rounds = COURSES[name]
    recorded, optimizer = SUGGESTIONS[name], make(build)
    assert call(optimizer, rounds, **options) == recorded["before"]
    assert call(optimizer, rounds, **options) == recorded["after"]
    assert facts(optimizer) == {key: recorded[key] for key in recorded if key not in ("before", "after")}


@pytest.mark.parametrize("name", SAVED)
def test_saved_file_of_version_0_2_0_continues_as_that_version_did(name: str) -> None:
    _, call, options, rounds = COURSES[name]
    loader = CandidateOptimizer if name.startswith("rows") else Optimizer
    optimizer: Any = loader.load(RECORDED / f"{name.replace(' ', '_')}.json")
    recorded = SUGGESTIONS.get(f"{name}, saved by version 0.2.0", SUGGESTIONS[name])
    assert call(optimizer, rounds, **options) == recorded["after"]
    assert facts(optimizer) == {key: recorded[key] for key in recorded if key not in ("before", "after")}


@pytest.mark.parametrize("name", ["rows existing", "trained"])
def test_pickle_of_version_0_2_0_continues_as_that_version_did(name: str) -> None:
    _, call, options, rounds = COURSES[name]
    packed = (RECORDED / f"{name.replace(' ', '_')}.pickle.gz").read_bytes()
    optimizer = pickle.loads(gzip.decompress(packed))
    recorded = SUGGESTIONS.get(f"{name}, saved by version 0.2.0", SUGGESTIONS[name])
    assert call(optimizer, rounds, **options) == recorded["after"]
