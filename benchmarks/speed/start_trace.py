"""`python -m benchmarks.speed.start_trace FILE.png`: which processes work while a campaign starts,
and how much.

Every 50 ms the processor time of `bbkb run` and of all that it starts is read from /proc. Seconds
count from the moment at which Ray is up. A machine with other work makes all of them longer; the
processor seconds depend on it less.
"""

import os
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Annotated

import numpy as np
import typer
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from benchmarks.command import run as run_command
from benchmarks.speed.start import RAY_IS_UP, begin_campaign, begun_attempts

_PROC = Path("/proc")
_PAUSE = 0.05  # seconds between two readings
_BIN = 0.1  # seconds of a column of the picture
_LEAST = 0.05  # processor seconds of a process that is shown
_TICK = os.sysconf("SC_CLK_TCK")
# names of processes by a part of their command, the first that fits; the last name of a process counts
_NAMES = (
    ("raylet/raylet", "Ray: raylet"),  # its command names that of the workers
    ("orchestrator run", "bbkb run"),
    ("Orchestrator", "coordinator"),
    ("WorkerActor", "worker"),
    ("evaluate:", "worker"),
    ("ray::IDLE", "worker that waits"),
    ("default_worker.py", "worker that waits"),
    ("gcs_server", "Ray: head (gcs)"),
    ("ashboard", "Ray: dashboard and its agents"),
    ("multiprocessing", "Ray: dashboard and its agents"),
    ("RuntimeEnvAgent", "Ray: dashboard and its agents"),
    ("agent/main.py", "Ray: dashboard and its agents"),
    ("monitor.py", "Ray: monitors"),
)
_SHARED = "Ray:"  # processes whose names begin so are one row
_OTHER = "Ray: other"


@dataclass
class Process:
    """What was read of one process: times since Ray was up (s), and its processor seconds then."""

    command: str = ""
    times: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    def at(self, when: float) -> float:
        """Processor seconds until `when`."""
        return float(np.interp(when, self.times, self.seconds, left=0.0))


@dataclass(frozen=True)
class Trace:
    """The start of one campaign: its processes by number, the begin of Python and of each
    evaluation, in seconds since Ray was up."""

    processes: dict[int, Process]
    began: float
    evaluations: Sequence[float]


def trace(workers: int) -> Trace:
    """Watch the start of a campaign with so many workers."""
    processes: dict[int, Process] = {}
    up_at: list[float] = []
    with TemporaryDirectory() as folder:
        began = time.time()
        with begin_campaign(Path(folder), workers) as campaign:
            assert campaign.stdout is not None
            threading.Thread(target=_note_start, args=(campaign.stdout, up_at), daemon=True).start()
            while campaign.poll() is None:
                _read_tree(processes, campaign.pid)
                time.sleep(_PAUSE)
        is_up = up_at[0]
        starts = [start - is_up for start in begun_attempts(Path(folder))]
    for process in processes.values():
        process.times = [when - is_up for when in process.times]
    return Trace(processes, began - is_up, starts)


def _note_start(output: IO[str], up_at: list[float]) -> None:
    """Note when Ray is up, by the `output` of the campaign, which is read to its end."""
    up_at += (time.time() for line in output if line.startswith(RAY_IS_UP))


def _read_tree(processes: dict[int, Process], root: int) -> None:
    """Add a reading of the process `root` and of all that descend from it."""
    now, readings = time.time(), dict(_readings())
    members = {root, *processes} & set(readings)
    while new := {number for number, (parent, _) in readings.items() if parent in members} - members:
        members |= new
    for number in members:
        process = processes.setdefault(number, Process())
        process.command = _command(number) or process.command
        process.times.append(now)
        process.seconds.append(readings[number][1])


def _readings() -> Iterator[tuple[int, tuple[int, float]]]:
    """Yield of each process its number, its parent and its processor seconds."""
    for name in os.listdir(_PROC):
        if name.isdecimal():
            try:
                numbers = (_PROC / name / "stat").read_text().rsplit(")", 1)[1].split()
            except OSError:  # it has ended
                continue
            yield int(name), (int(numbers[1]), (int(numbers[11]) + int(numbers[12])) / _TICK)


def _command(number: int) -> str:
    """Return the command of a process; empty when it has ended."""
    try:
        return (_PROC / str(number) / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def rows_of(found: Trace) -> dict[str, list[Process]]:
    """Return the processes of each row of the picture, by its label."""
    rows: dict[str, list[Process]] = {}
    for _, process in sorted(found.processes.items()):
        if process.seconds[-1] < _LEAST:
            continue  # a helper that ended at once
        name = next((name for part, name in _NAMES if part in process.command), _OTHER)
        label = name if name.startswith(_SHARED) else f"{name}{' ' * sum(label.strip() == name for label in rows)}"
        rows.setdefault(label, []).append(process)
    order = [*(name for _, name in _NAMES if not name.startswith(_SHARED)), *(name for _, name in _NAMES), _OTHER]
    return dict(sorted(rows.items(), key=lambda row: order.index(row[0].strip())))


def draw(found: Trace, file: Path) -> None:
    """Draw the share of a processor that each row takes, over time."""
    rows, end = rows_of(found), max(found.evaluations) + 0.5
    edges = np.arange(found.began, end, _BIN)
    used = np.zeros((len(rows), len(edges) - 1))
    for shares, processes in zip(used, rows.values(), strict=True):
        for process in processes:
            shares += np.diff([process.at(edge) for edge in edges]) / _BIN
    figure = Figure(figsize=(11, 0.32 * len(rows) + 1.4), layout="constrained")
    axes = figure.subplots()
    image = axes.imshow(
        used,
        extent=(found.began, end, len(rows), 0.0),
        aspect="auto",
        cmap="Blues",
        vmin=0.0,
        vmax=1.0,
        interpolation="nearest",
    )
    axes.set_yticks(np.arange(len(rows)) + 0.5, [label.strip() for label in rows])
    axes.axvline(0.0, color="black", linewidth=1.0)
    for when in found.evaluations:
        axes.axvline(when, color="crimson", linewidth=1.0)
    axes.set_xlabel("seconds since Ray was up (black); evaluations begin (red)")
    figure.colorbar(image, label="share of a core", pad=0.01)
    figure.savefig(file, dpi=110)


Picture = Annotated[Path, typer.Argument(metavar="FILE.png", help="Where the picture is written.")]
Workers = Annotated[int, typer.Option(min=1, help="Workers of the campaign.")]


def main(picture: Picture, workers: Workers = 4) -> None:
    """Trace one start; draw it, and print the processor seconds of each row."""
    found = trace(workers)
    draw(found, picture)
    end = max(found.evaluations)
    table = Table("process", "processor seconds before Ray is up", "until the last evaluation begins")
    for label, processes in rows_of(found).items():
        before = sum(process.at(0.0) for process in processes)
        table.add_row(label.strip(), f"{before:.2f}", f"{sum(process.at(end) for process in processes) - before:.2f}")
    console = Console(width=140)
    console.print(table)
    begun = ", ".join(f"{when:.2f}" for when in found.evaluations)
    console.print(f"Ray is up {-found.began:.2f} s after the command; evaluations begin at {begun} s.")


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
app.command()(main)


if __name__ == "__main__":
    run_command(app, "benchmarks.speed.start_trace")
