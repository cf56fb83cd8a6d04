"""The trial of a training: reports, and checkpoints in the trial's folder.

The callbacks of libraries and the trainings in `problems.training` use it, and
`bbkb.integrations.trial` exports it for other training loops.
"""

import itertools
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from bbkb.objectives.machines import RANK_VARIABLES, gives_value
from bbkb.objectives.objective import MOST_METRICS, NAME_CHARACTERS, EvaluationStopped, Report
from bbkb.objectives.report_lines import ARGUMENTS
from bbkb.objectives.returned import number_of


class Trial:
    """The trial in which a training runs.

    Attributes:
        folder: the trial's folder for checkpoints, or None.
        checkpoint: the newest complete checkpoint in it, or None.
        step: the step after which that checkpoint was saved; 0 if there is none.
        is_first: whether this process is the first process of the training. Only the first one
            reports and saves checkpoints. It is determined from the machine of `report` and from
            the variables of torchrun and mpirun, unless a library sets it.
    """

    def __init__(self, report: Report | None = None, folder: str | os.PathLike[str] | None = None) -> None:
        """Find the trial's folder and its newest checkpoint.

        Args:
            report: the function's argument `report`. By default, reports are printed as lines
                `BBKB_REPORT step value name=number …`, as in a command.
            folder: the folder for checkpoints. By default, the folder of `report` (which may have
                none), or else the one in the variable BBKB_FOLDER.
        """
        if folder is None:
            folder = getattr(report, "folder", os.environ.get("BBKB_FOLDER") or None)
        self._report = report or _print_report
        ranks = [os.environ.get(name, "") for name in RANK_VARIABLES]  # of torchrun and mpirun
        has_higher_rank = any(rank.isdecimal() and int(rank) for rank in ranks)
        self.is_first = gives_value(report) and not has_higher_rank
        self.folder = None if folder is None else Path(folder)
        self.checkpoint, self.step = _newest_checkpoint(self.folder)

    def report(self, metrics: Mapping[str, object], name: str, step: int) -> bool:
        """Report the metric `name` at `step`, counted from 1, with the other numbers in `metrics`.

        Report a step before its checkpoint is saved: a training that is killed between the two
        calls then repeats the step, and its curve has no gap.

        Return whether the campaign stops the trial, which is False in all but the first process.
        Raises KeyError if the metric does not exist.
        """
        if not self.is_first:
            return False
        if name not in metrics:
            raise KeyError(f"metric {name!r} must be one that the training computes: {', '.join(metrics) or 'none'}")
        try:
            self._report(float(metrics[name]), step, **_others(metrics, name))  # type: ignore[arg-type]  # a number
        except EvaluationStopped:
            return True
        return False

    def save(self, write: Callable[[str], object], step: int, suffix: str = "", all_write: bool = False) -> None:
        """Save a checkpoint with `write`, rename it when complete, and remove the previous one.

        Args:
            write: called with a path that ends with `suffix`, unless the trial has no folder.
            step: the step after which the checkpoint is saved.
            suffix: the file's suffix, by which a library selects the format.
            all_write: whether all processes of a training call `write`.
        """
        if self.folder is None or not (self.is_first or all_write):
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        draft = self.folder / f"draft-{step}{suffix}"
        write(str(draft))
        self.keep(draft, step, suffix)

    def keep(self, draft: Path, step: int, suffix: str = "") -> None:
        """Move a complete checkpoint, a file or a folder on the same disk, to its final path.

        The previous checkpoint, and drafts of attempts that died while saving, are removed.
        """
        if self.folder is None or not self.is_first:
            return
        before = self.checkpoint
        complete = self.folder / f"step-{step}{suffix}"
        if complete.is_dir():  # from an attempt that died before it removed the previous one
            shutil.rmtree(complete)
        self.folder.mkdir(parents=True, exist_ok=True)
        draft.rename(complete)
        self.checkpoint = complete
        self.step = step
        replaced = [before] if before is not None and before != complete else []
        for path in [*replaced, *self.folder.glob("draft-*")]:
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def _newest_checkpoint(folder: Path | None) -> tuple[Path | None, int]:
    """Return the checkpoint with the largest step and this step; None and 0 if there is none."""
    newest: tuple[Path | None, int] = (None, 0)
    for path in [] if folder is None else folder.glob("step-*"):
        step = path.name.removeprefix("step-").partition(".")[0]
        if step.isdecimal() and int(step) > newest[1]:
            newest = (path, int(step))
    return newest


def _others(metrics: Mapping[str, object], name: str) -> dict[str, float]:
    """Return the other numbers that a report can contain, with underscores in place of spaces in
    their names."""
    numbers = (("_".join(str(key).split()), number_of(metric)) for key, metric in metrics.items() if key != name)
    further = {
        key: number
        for key, number in numbers
        if number is not None and key not in ARGUMENTS and 0 < len(key) <= NAME_CHARACTERS
    }
    return dict(itertools.islice(further.items(), MOST_METRICS))


def _print_report(value: float, step: int | None = None, **metrics: float) -> None:
    """Print a report; in a campaign's command on a separate line, even after a progress bar."""
    named = "".join(f" {name}={number!r}" for name, number in metrics.items())
    start = "\n" if "BBKB_RESULT" in os.environ else ""
    print(f"{start}BBKB_REPORT {step} {value!r}{named}\n", end="", flush=True)  # in one piece
