"""Files of `Optimizer.save`: one JSON object with the arguments and the log of events.

Reading a file folds the events again, without draws or fits. A file with `space` contains a search
over configurations, and a file with `arms` contains a search over the rows of an array.
"""

import base64
import hashlib
import io
import json
import sys
import tokenize
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from bbkb.objectives.objective import ObjectiveError
from bbkb.orchestrator.bandit.arms import Arms, Layout, check_features
from bbkb.orchestrator.bandit.options import excerpt
from bbkb.orchestrator.bandit.strategy import AnyStrategy
from bbkb.orchestrator.campaign.events import Event
from bbkb.orchestrator.files import read_small, write_text
from bbkb.orchestrator.wording import one_line

Entry = dict[str, Any]  # a call, a result, or a complete file, as JSON values

FORMAT = 1
_CHECKSUM = "checksum"  # of the other entries
# the exceptions that the constructors raise for a damaged file
_DAMAGES = (
    ValueError,
    KeyError,
    TypeError,
    IndexError,
    AttributeError,
    OverflowError,
    RecursionError,
    MemoryError,  # for a number of rows or columns that no machine can hold
    ObjectiveError,
    tokenize.TokenError,  # of NumPy, for the header of an array
)
_SHOWN = 1000  # characters of an error's text, which may repeat a value of the file
Kind = Literal["arms", "space"]  # the key that identifies a file of this kind
_MOST_BYTES = 2_000_000_000  # of a saved file
_CLASSES: Mapping[Kind, str] = {"arms": "CandidateOptimizer", "space": "Optimizer"}


def write_saved(path: str | Path, saved: Mapping[str, object]) -> None:
    """Write `saved` as JSON with a checksum, atomically. Raises OSError if it cannot be written."""
    write_text(Path(path), json.dumps({**saved, _CHECKSUM: _checksum(saved)}) + "\n")


def _checksum(saved: Mapping[str, object]) -> str:
    return hashlib.sha256(json.dumps(saved).encode()).hexdigest()


def read_saved(path: str | Path, restore: Callable[[Entry], None], kind: Kind, runs_code: bool) -> None:
    """Call `restore` with the values that `write_saved` wrote. Raises ValueError if the file cannot
    be read, was not written by `write_saved`, or has another `kind` because the other class wrote
    it. Nothing is imported unless `runs_code`: without it, a strategy in a module that this program
    has not imported also raises ValueError."""
    try:
        saved = json.loads(read_small(Path(path), _MOST_BYTES).decode("utf-8"))
        if not isinstance(saved, dict) or saved.get("format") != FORMAT:
            raise ValueError(f"its format must be {FORMAT}")
        if _CHECKSUM in saved and saved.pop(_CHECKSUM) != _checksum(saved):
            raise ValueError("its checksum differs from its content; to load it anyway, remove `checksum`")
        for other, written_by in _CLASSES.items():
            if other != kind and other in saved:
                raise ValueError(f"it was written by {written_by}; write {written_by}.load(path)")
        if not runs_code:
            _refuse_import(saved)
        restore(saved)
    except OSError as error:
        raise ValueError(f"path must be a file that save wrote, got {excerpt(str(path))}: {error.strerror}") from error
    except _DAMAGES as error:
        reason = one_line(f"{type(error).__name__}: {error}", _SHOWN)
        raise ValueError(f"{path} is not a saved {_CLASSES[kind]}: {reason}") from error


def _refuse_import(saved: Entry) -> None:
    """Raise ValueError if reading the strategy would import a module and so run its code."""
    strategy = saved.get("strategy")
    name = strategy.get("name") if isinstance(strategy, dict) else strategy
    module, colon, _ = str(name).rpartition(":")
    if colon and module not in sys.modules:
        raise ValueError(
            f"its strategy is {name}, and loading it runs the code of {module}: import {module} first, or pass "
            "run_code=True, if you trust the file"
        )


def dump_log(events: Sequence[Event]) -> list[list[Any]]:
    """Return the kind and the fields of each event."""
    # imported here, because only saving needs pydantic
    from bbkb.orchestrator.campaign.event_json import body_of

    return [[event.kind, json.loads(body_of(event))] for event in events]


def read_log(entries: Sequence[Any]) -> Iterator[Event]:
    """Yield the events that `dump_log` wrote."""
    from bbkb.orchestrator.campaign.event_json import event_of

    for kind, body in entries:
        yield event_of(kind, json.dumps(body))


def dump_arms(arms: Arms) -> Entry:
    """Return `arms` as plain values. The float64 features are in NumPy's format, encoded as base64,
    so that no digit is lost.

    Raises ValueError if the features are not in a single array.
    """
    if not isinstance(arms.features, np.ndarray):
        raise ValueError(f"candidates must be one array to be saved, got {type(arms.features).__name__}")
    buffer = io.BytesIO()
    np.save(buffer, arms.features, allow_pickle=False)
    return {
        "features": base64.b64encode(buffer.getvalue()).decode("ascii"),
        "parameters": arms.parameters.tolist(),
        "extents": arms.extents.tolist(),
        "repeats": arms.repeats,
        "is_sequence": arms.layout.is_sequence,
    }


def build_arms(saved: Mapping[str, Any]) -> Arms:
    """Return the arms that `dump_arms` wrote. Raises ValueError if they are invalid."""
    content = base64.b64decode(saved["features"], validate=True)
    features = check_features(np.load(io.BytesIO(content), allow_pickle=False))
    layout = Layout(
        parameters=np.array(saved["parameters"], np.intp),
        extents=np.array(saved["extents"], np.float64),
        repeats=bool(saved["repeats"]),
        is_sequence=bool(saved["is_sequence"]),
    )
    return Arms(features, layout)


def dump_named(strategy: AnyStrategy) -> Entry:
    """Return the name and the options of the strategy. Raises ValueError if a file cannot represent
    it."""
    # imported here, because only saving needs pydantic
    from bbkb.orchestrator.settings.strategies import build_strategy, dump_strategy

    try:
        dumped = dict(dump_strategy(strategy))
        if build_strategy(dumped) == strategy:
            return dumped
        problem = "it would be loaded as another one"
    except (ValueError, TypeError) as error:  # includes pydantic's errors
        problem = str(error).splitlines()[0]
    raise ValueError(
        f"the strategy {strategy!r} cannot be written into a file: {problem}; its options must be plain values or "
        "parts of bbkb"
    )
