"""Record docs/terminal.svg: the terminal of a first campaign, as an animated SVG without scripts.

The command runs on a pseudo-terminal, and pyte interprets its output. The time between two frames
is real time, but pauses are shortened.
"""

import fcntl
import html
import os
import pty
import select
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator
from itertools import groupby, pairwise
from pathlib import Path

import pyte
from pyte.screens import Char

REPOSITORY = Path(__file__).parents[2]
COMMAND = "bbkb run configs/quickstart.yaml"
COLUMNS = 104
ROWS = 30
CELL = (7.85, 17)  # pixels of a character
MARGIN = 14
MOST_FRAMES = 40
LONGEST = 0.5  # seconds that a frame is shown
LAST = 6.0  # seconds that the last frame is shown
COLORS = {  # of pyte: in a light and in a dark terminal
    "red": ("#b3261e", "#ff8a80"),
    "green": ("#1a7f37", "#56d364"),
    "brown": ("#8a6100", "#e3b341"),
    "blue": ("#0550ae", "#79c0ff"),
    "magenta": ("#8250df", "#d2a8ff"),
    "cyan": ("#0a6e7d", "#56d4dd"),
    "black": ("#8c959f", "#6e7681"),
    "brightblack": ("#8c959f", "#6e7681"),
    "3a3a3a": ("#d0d7de", "#30363d"),  # of rich: the rest of a progress bar
    "f92672": ("#0067a8", "#62b5f0"),  # its progress
    "729c1f": ("#1a7f37", "#56d364"),  # a complete one
}
Frame = tuple[float, list[str]]  # seconds since the start, and the lines as SVG


def main() -> None:
    """Record the command, and write the picture."""
    text = picture(list(thinned(list(frames()))))
    (REPOSITORY / "docs" / "terminal.svg").write_text(text, encoding="utf-8")
    print(f"docs/terminal.svg: {len(text) / 1000:.0f} kB")


def frames() -> Iterator[Frame]:
    """Run the command in a new folder, and return the screen whenever it has changed."""
    screen = pyte.Screen(COLUMNS, ROWS)
    stream = pyte.ByteStream(screen)
    stream.feed(f"$ {COMMAND}\r\n".encode())
    yield 0.0, lines(screen)
    begun = time.monotonic()
    for data in output():
        stream.feed(data)
        yield time.monotonic() - begun, lines(screen)


def output() -> Iterator[bytes]:
    """Return the output of the command in pieces of a tenth of a second."""
    with tempfile.TemporaryDirectory(prefix="demo-") as folder:
        (Path(folder) / "configs").mkdir()
        shutil.copy(REPOSITORY / "configs" / "quickstart.yaml", Path(folder) / "configs")
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        environment = {**os.environ, "TERM": "xterm-256color"}
        environment["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        process = subprocess.Popen(
            COMMAND.split(),
            cwd=folder,
            env=environment,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
        )
        os.close(theirs)
        while process.poll() is None or select.select([ours], [], [], 0)[0]:
            time.sleep(0.1)
            if select.select([ours], [], [], 0.2)[0]:
                try:
                    yield os.read(ours, 1 << 20)
                except OSError:  # the command has closed the terminal
                    break
        if process.wait():
            sys.exit(f"{COMMAND} failed with exit code {process.returncode}")


def lines(screen: pyte.Screen) -> list[str]:
    """Return the rows of the screen as SVG."""
    return [line([screen.buffer[row][column] for column in range(COLUMNS)]) for row in range(ROWS)]


def line(characters: list[Char]) -> str:
    """Return a row as `tspan` elements, one for each run of characters of the same style."""
    parts = []
    column = 0
    for style, group in groupby(characters, lambda character: (character.fg, character.bold)):
        text = "".join(character.data for character in group)
        if text.strip():
            color, is_bold = style
            names = [name for name in (color in COLORS and f"c-{color}", is_bold and "bold") if name]
            kind = f' class="{" ".join(names)}"' if names else ""
            position = (column + len(text) - len(text.lstrip())) * CELL[0]
            parts.append(f'<tspan x="{position:.1f}"{kind}>{html.escape(text.strip(), quote=False)}</tspan>')
        column += len(text)
    return "".join(parts)


def thinned(recorded: list[Frame]) -> Iterator[Frame]:
    """Return at most `MOST_FRAMES` frames that differ, with shortened pauses: the seconds that each
    is shown."""
    changed = [frame for frame, before in zip(recorded[1:], recorded, strict=False) if frame[1] != before[1]]
    step = max(1, -(-len(changed) // MOST_FRAMES))
    kept = [recorded[0], *changed[::step]]
    if kept[-1][1] != changed[-1][1]:
        kept.append(changed[-1])
    for (begun, shown), (ended, _) in pairwise(kept):
        yield min(LONGEST, ended - begun), shown
    yield LAST, kept[-1][1]


def picture(shown: list[Frame]) -> str:
    """Return the animated SVG. Each distinct line is written once. A frame refers to its lines."""
    width = round(COLUMNS * CELL[0]) + 2 * MARGIN
    height = ROWS * CELL[1] + 2 * MARGIN
    texts = list(dict.fromkeys(text for _, rows in shown for text in rows if text))
    numbers = {text: number for number, text in enumerate(texts)}
    definitions = "".join(f'<text id="t{numbers[text]}">{text}</text>' for text in texts)
    film = []
    for place, (_, rows) in enumerate(shown):
        heights = ((text, (row + 0.8) * CELL[1]) for row, text in enumerate(rows) if text)
        uses = "".join(f'<use href="#t{numbers[text]}" y="{y:.1f}"/>' for text, y in heights)
        film.append(f'<g transform="translate(0 {place * height})">{uses}</g>')
    size = f'width="{width}" height="{height}"'
    inner = f'width="{width - MARGIN}" height="{height - 2 * MARGIN}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" {size} role="img" '
        f'aria-label="A terminal: {COMMAND}"><style>{style(shown, height)}</style>'
        f"<defs>{definitions}</defs>"
        f'<rect x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="8"/>'
        f'<svg x="{MARGIN}" y="{MARGIN}" {inner}><g id="film">{"".join(film)}</g></svg></svg>\n'
    )


def style(shown: list[Frame], height: int) -> str:
    """Return the style sheet: colors of both schemes, and the animation."""
    light, dark = ("".join(f".c-{name}{{fill:{pair[scheme]}}}" for name, pair in COLORS.items()) for scheme in (0, 1))
    total = sum(seconds for seconds, _ in shown)
    steps = []
    now = 0.0
    for place, (seconds, _) in enumerate(shown):
        steps.append(f"{100 * now / total:.2f}%{{transform:translateY({-place * height}px)}}")
        now += seconds
    last = -(len(shown) - 1) * height
    return (
        "text{font:13px ui-monospace,'DejaVu Sans Mono',Menlo,Consolas,monospace;"
        "white-space:pre;fill:#1f2328}rect{fill:#f6f8fa;stroke:#d0d7de}.bold{font-weight:600}"
        f"{light}@media(prefers-color-scheme:dark){{text{{fill:#e6edf3}}"
        f"rect{{fill:#0d1117;stroke:#30363d}}{dark}}}"
        f"#film{{animation:film {total:.1f}s steps(1,end) infinite}}"
        f"@keyframes film{{{''.join(steps)}}}"
        f"@media(prefers-reduced-motion:reduce){{#film{{animation:none;"
        f"transform:translateY({last}px)}}}}"
    )


if __name__ == "__main__":
    main()
