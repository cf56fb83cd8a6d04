"""The display format of times, durations and texts from outside."""

import html
import re
from collections.abc import Sequence
from datetime import UTC, datetime

# Characters that a terminal executes instead of displaying: control characters of ASCII and Latin-1
# except tab and line feed, marks of the direction of writing, surrogates, and characters without
# width, which make two names look the same. Joiners are allowed, because words of some scripts and
# composed emoji need them.
_CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ud800-\udfff\ufeff"
    "\U000e0000-\U000e007f]"
)
_FIRST = -6.2e10  # in the year 5
_LAST = 253_402_300_799.0  # in the year 9999
# larger values are wall-clock times (2001 and later), smaller values are virtual times
_EPOCH_FROM = 1e9


def duration(seconds: float) -> str:
    """Return the two leading units: `0.214 s`, `1 min 5 s`, `2 h 3 min`, `12 d 4 h`."""
    if round(seconds) < 60:
        return f"{seconds:.3g} s"
    whole = round(seconds)
    minutes = whole // 60
    hours = whole // 3600
    days = whole // 86400
    if days:
        return f"{days:,} d {hours % 24} h"
    return f"{hours} h {minutes % 60} min" if hours else f"{minutes} min {whole % 60} s"


def is_wall_clock(time: float) -> bool:
    """Return whether a time of an executor's clock is wall-clock time, not virtual time."""
    return time >= _EPOCH_FROM


def moment(time: float) -> str:
    """Return an executor's time as `2026-03-01 14:05:09 UTC`, or in seconds if it is virtual."""
    if not is_wall_clock(time):
        return f"{time:.1f} s (virtual)"
    return _in_utc(time).strftime("%Y-%m-%d %H:%M:%S UTC")


def iso(time: float) -> str:
    """Return a time of an executor's clock as ISO 8601 in UTC, for programs:
    `2026-03-01T14:05:09.250000Z`.

    Virtual time is counted from 1970-01-01T00:00:00.000000Z; a time after the year 9999 is written
    as the end of that year.
    """
    return _in_utc(time).isoformat(timespec="microseconds").removesuffix("+00:00") + "Z"


def _in_utc(time: float) -> datetime:
    return datetime.fromtimestamp(min(max(_FIRST, time), _LAST), UTC)


def printable(text: str) -> str:
    """Return `text` for a terminal or a log: control characters are escaped (`\\x1b`)."""
    return _CONTROLS.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def one_line(text: object, limit: int) -> str:
    """Return `text` with collapsed white space, cut to at most `limit` characters."""
    line = " ".join(str(text).split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def facts_html(caption: str, facts: Sequence[tuple[str, str]]) -> str:
    """Return names and texts as a small HTML table, escaped, for notebooks."""
    rows = "".join(
        f"<tr><th style='text-align:left'>{html.escape(name)}</th><td>{html.escape(text)}</td></tr>"
        for name, text in facts
    )
    return f"<table><caption>{html.escape(caption)}</caption>{rows}</table>"


def joined(separator: str, *parts: object) -> str:
    """Join the texts among `parts`, such as `count and f"{count} open"`, that are not empty."""
    return separator.join(part for part in parts if isinstance(part, str) and part)


def size_text(size: float) -> str:
    """Return a number of bytes in a readable unit."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} TB"


def plural(count: int, noun: str, ending: str = "s") -> str:
    """Return a number with its noun, such as `1 batch` or `2 batches`."""
    return f"{count:,} {noun}{'' if count == 1 else ending}"


def noun_and_numbers(noun: str, numbers: Sequence[int]) -> str:
    """Return a noun with numbers, such as `trial 25` or `trials 0, 7`."""
    return f"{noun}{'' if len(numbers) == 1 else 's'} {', '.join(map(str, numbers))}"


def rounded(number: float, digits: int) -> str:
    """Return a number with `digits` significant digits, and with an exponent only from a million
    on."""
    text = f"{number:.{digits}g}"
    return text if abs(number) >= 1e6 else f"{float(text):.6g}"


def short_text(value: object) -> str:
    """Return a parameter's value as short text."""
    return rounded(value, 4) if isinstance(value, float) else str(value)
