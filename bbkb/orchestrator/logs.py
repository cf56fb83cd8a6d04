"""The operator's log: one line for each important event, with campaign, trial and attempt.

Modules of the shell log to `logging.getLogger("bbkb.…")`, with `extra={"trial": …, "attempt": …}`.
Nothing is written unless `log_into` (the `bbkb` command and the coordinator) or the program that
uses the library adds a handler. The log is for people and log collectors; the campaign's results
are in its event log, which is complete without it.
"""

import logging
import os
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path

from bbkb.orchestrator.errors import RunError
from bbkb.orchestrator.files import make_private
from bbkb.orchestrator.wording import printable

ROOT = "bbkb"
FILE_NAME = "run.log"
_FIELDS = ("campaign", "trial", "attempt")  # optional fields of a record
_ONE_LINE = str.maketrans({"\n": "\\n", "\t": "\\t"})  # not escaped by `printable`; they would let a text forge lines

# the run of the current session, whose log gets its lines; None in other threads
_FOLDER: ContextVar[Path | None] = ContextVar("folder", default=None)
# the handlers of the open sessions, in any thread
_SESSIONS: list[logging.Handler] = []
_CHANGING = threading.Lock()
_PROGRAM = ExitStack()  # restores the program's own settings after the last session

logging.getLogger(ROOT).addHandler(logging.NullHandler())  # so that a library does not print warnings


@contextmanager
def log_into(folder: Path, campaign: str) -> Iterator[None]:
    """Append the log of this process to `run.log` in a run's folder.

    Args:
        folder: the run's folder. If it does not exist (for a coordinator on another machine whose
            store is a database server), the lines go to standard error, which is in Ray's logs.
        campaign: the campaign's name, which is in each line.

    Raises:
        RunError: if the file cannot be written.
    """
    logger = logging.getLogger(ROOT)
    handler: logging.Handler = logging.StreamHandler()
    if folder.is_dir():
        file = folder / FILE_NAME
        try:
            make_private(file)
            # fails for a pipe without a reader, which would block the handler
            with open(os.open(file, os.O_WRONLY | os.O_NONBLOCK), "wb"):
                handler = logging.FileHandler(file, encoding="utf-8")
        except OSError as error:
            raise RunError(f"{file} cannot be written: {error.strerror}; make it a writable file") from error
    handler.setFormatter(TextFormatter(campaign))
    handler.setLevel(logging.INFO)
    handler.addFilter(lambda _: _FOLDER.get() in (folder, None))
    outer = _FOLDER.get()
    _FOLDER.set(folder)
    with _CHANGING:
        if not _SESSIONS:
            _take_over(logger)
        _SESSIONS.append(handler)
        logger.addHandler(handler)
        logger.setLevel(min(logger.getEffectiveLevel(), handler.level))
    try:
        yield
    finally:
        with _CHANGING:
            _SESSIONS.remove(handler)
            logger.removeHandler(handler)
            if not _SESSIONS:
                _PROGRAM.close()
        if _FOLDER.get() == folder:  # otherwise another thread ends the session
            _FOLDER.set(outer)
        # a full disk at the end must not hide the outcome of the session
        with suppress(OSError):
            handler.close()


def _take_over(logger: logging.Logger) -> None:
    """Send the program only the records of its own level until `_PROGRAM` is closed."""
    _PROGRAM.callback(logger.setLevel, logger.level)
    if logger.propagate:
        program = _RootHandlers(logger.getEffectiveLevel())
        logger.addHandler(program)
        logger.propagate = False
        _PROGRAM.callback(logger.removeHandler, program)
        _PROGRAM.callback(setattr, logger, "propagate", True)


class _RootHandlers(logging.Handler):
    """The root logger's handlers, for records of the program's level: that of `log_into` would fill the
    terminal of a program that has called `logging.basicConfig`."""

    def emit(self, record: logging.LogRecord) -> None:
        """Pass the record to each handler of the root logger."""
        for handler in logging.getLogger().handlers:
            if record.levelno >= handler.level:
                handler.handle(record)


class TextFormatter(logging.Formatter):
    """`2026-03-01T14:05:09.250Z WARNING bbkb.session campaign=x trial=3 attempt=1: failed …`,
    always one line."""

    def __init__(self, campaign: str) -> None:
        super().__init__()
        self._campaign = campaign

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line."""
        values = {"campaign": self._campaign, **vars(record)}
        fields = "".join(f" {name}={values[name]}" for name in _FIELDS if name in values)
        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        message = record.getMessage()
        if record.exc_info:
            message = f"{message}\n{self.formatException(record.exc_info)}"
        text = f"{seconds}.{int(record.msecs):03}Z {record.levelname} {record.name}{fields}: {message}"
        return printable(text).translate(_ONE_LINE)
