"""The errors for users, in one tree. A message states the rule, the value, the place and the remedy.

    BbkbError
    ├── UserError            exit code 2: something to fix in a file, a flag or the environment
    │   ├── ConfigError      the campaign file, or a `--set`
    │   ├── RunError         a run's folder or log: missing, not ours, of another campaign
    │   │   └── HeldError    another process runs the campaign
    │   └── StoreError       the database: unreachable, unwritable, damaged
    ├── ObjectiveError       exit code 2: an objective, space or data set cannot be built as requested
    └── CampaignError        exit code 1: the campaign itself went wrong
        ├── FencedError      another process has taken over the campaign
        └── ActorLostError   the central actor died; the log is complete, `bbkb resume` continues

`BbkbError` and `ObjectiveError` are defined in `bbkb.objectives.errors`, because `objectives` imports no
other package.
"""

import traceback

from bbkb.objectives.errors import BbkbError as BbkbError  # the root of the tree


class UserError(BbkbError):
    """A problem that the user can fix. Shown without a traceback."""

    def _render_traceback_(self) -> list[str]:
        """Return the text for a notebook: only the message, as in the terminal."""
        return [f"{type(self).__name__}: {self}"]


class ConfigError(UserError):
    """The campaign file or an override is wrong."""


class RunError(UserError):
    """A run's folder or log cannot be used as requested."""


class HeldError(RunError):
    """Another process that is alive runs the campaign."""


class StoreError(UserError):
    """The database cannot be used. `is_transient`: whether a retry may help (unreachable, busy)."""

    def __init__(self, message: str, is_transient: bool = False) -> None:
        super().__init__(message)
        self.is_transient = is_transient


class CampaignError(BbkbError):
    """A campaign failed."""


class FencedError(CampaignError):
    """Another process holds the campaign; this one must not write."""


class ActorLostError(CampaignError):
    """The coordinator's actor died."""


def place_of(error: BaseException) -> str:
    """Return file, line and function of the error in brackets; empty if there is no traceback."""
    frames = traceback.extract_tb(error.__traceback__)
    return f" ({frames[-1].filename}:{frames[-1].lineno}, in {frames[-1].name})" if frames else ""


def trace_of(error: BaseException) -> str:
    """Return the traceback of an error in Python's format."""
    return "".join(traceback.format_exception(error)).rstrip()


def reason_of(error: Exception) -> str:
    """Return the reason that a run cannot be read, as one line of a list."""
    text = str(error) or "no message"
    return text if isinstance(error, BbkbError) else f"it is damaged, {type(error).__name__}: {text}"
