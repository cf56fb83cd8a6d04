"""The page of a campaign: one HTML file for the report, which contains its snapshot, and for the
live page, which polls it.

All texts from outside (messages, parameters, names, settings) are data: gzipped JSON in base64,
which has no special characters of HTML. The script builds the page from text nodes, and `figure.label`
escapes the texts of figures. A content security policy allows only the page's own script, and a
report no request at all. Characters without width, and those that change the direction of writing,
are shown as escapes.
"""

import base64
import gzip
import hashlib
import html
import json
import os
import re
from functools import cache
from pathlib import Path
from urllib.parse import quote

from plotly.offline import get_plotlyjs

from bbkb.orchestrator import files
from bbkb.orchestrator.history.fold import History
from bbkb.orchestrator.history.one_trial import Plain
from bbkb.orchestrator.report.figure import resource
from bbkb.orchestrator.report.snapshot import snapshot
from bbkb.orchestrator.wording import printable

# in JSON: a backslash, or a non-ASCII character except halves of surrogate pairs
_ESCAPES = re.compile(r"\\\\|\\u(?P<code>(?!d[89a-f])[0-9a-f]{4})")
# plotly.js sets styles in its figures and compiles shaders
_POLICY = (
    "default-src 'none'; script-src {script} 'unsafe-eval'; style-src 'unsafe-inline'; img-src data: blob:; "
    "connect-src {connect}; base-uri 'none'; form-action 'none'"
)


def write_report(history: History, path: Path, title: str, plotly: Path | None = None) -> None:
    """Write the report to `path`, readable only by its owner.

    Args:
        history: the campaign.
        path: the report's file, in the run's folder.
        title: its title.
        plotly: a plotly.js file for the report to refer to instead of containing it. It is written
            if it does not exist.

    Raises:
        OSError: if a file cannot be written; an existing report is then unchanged.
    """
    if plotly is not None and not plotly.exists():
        files.write_text(plotly, get_plotlyjs())
    shared = "" if plotly is None else os.path.relpath(plotly.resolve(), path.parent.resolve())
    files.write_text(path, page(title, snapshot(history, title), quote(shared)))


def page(title: str, data: Plain | None, plotly: str, root: str = "") -> str:
    """Return the page.

    Args:
        title: its title.
        data: the snapshot; None: the page polls it.
        plotly: the address of plotly.js; if it is empty, the page contains plotly.js.
        root: the address of a live page's server; empty in a report.
    """
    script = resource("page.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = _POLICY.format(
        script=f"'sha256-{digest}'{' ' + repr('self') if plotly else ''}", connect="'self'" if root else "'none'"
    )
    slots = {
        "policy": policy,
        "title": html.escape(printable(title)),
        "root": html.escape(root),
        "style": resource("page.css"),
        "snapshot": "" if data is None else pack(to_json(data)),
        "plotly": "" if plotly else _pack_plotly(),
        "shared": f'<script src="{html.escape(plotly)}"></script>' if plotly else "",
        "script": script,
    }
    return re.sub(r"\{\{ (\w+) \}\}", lambda match: slots[match[1]], resource("page.html"))


def to_json(value: object) -> str:
    """Return JSON in which invisible and direction-changing characters are escaped.

    Raises ValueError for NaN and infinities, which JSON cannot represent.
    """
    return _ESCAPES.sub(_visible, json.dumps(value, allow_nan=False, separators=(",", ":"), default=str))


def _visible(match: re.Match[str]) -> str:
    character = chr(int(match["code"], 16)) if match["code"] else ""
    return match[0] if printable(character) == character else f"\\{match[0]}"


def pack(text: str) -> str:
    """Return `text` gzipped in base64, which is a third of the size and has no special characters
    of HTML."""
    return base64.b64encode(gzip.compress(text.encode(), compresslevel=6, mtime=0)).decode()


@cache
def _pack_plotly() -> str:
    """Return plotly.js, compressed from 4.8 MB to 2 MB."""
    return pack(get_plotlyjs())
