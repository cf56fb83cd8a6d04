"""What a training needs of its trial: reporting, and checkpoints in its folder. The callbacks of
libraries and the trainings in `objectives.training` use it; `bbkb.integrations.trial` has it for
other training loops."""

import itertools
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from objectives.machines import RANK_VARIABLES, gives_value
from objectives.objective import MOST_METRICS, NAME_CHARACTERS, EvaluationStopped, HasFolder, Report
from objectives.report_lines import ARGUMENTS
from objectives.returned import number_of


class Trial:
    """The trial in which a training runs.

    `folder` is the trial's folder for checkpoints, None where it has none. `checkpoint` is the
    newest complete checkpoint in it, and `step` the step after which it was saved; None and 0 when
    there is none. `is_first`: whether this process is the first one of the training, which alone
    reports and keeps checkpoints; by the machine of `report` and the variables of torchrun and
    mpirun, until a library knows.
    """

    def __init__(self, report: Report | None = None, folder: str | os.PathLike[str] | None = None) -> None:
        """Find the trial's folder and its newest checkpoint.

        Args:
            report: the argument `report` of a function; None: print lines `BBKB_REPORT step value
                name=number …`, as a command does.
            folder: for checkpoints; None: that of `report`, if it knows the trial's folder (it may
                have none), else the one that BBKB_FOLDER names, else none.
        """
        if folder is None:
            folder = report.folder if isinstance(report, HasFolder) else os.environ.get("BBKB_FOLDER") or None
        self._report = report or _print_report
        ranks = [os.environ.get(name, "") for name in RANK_VARIABLES]
        self.is_first = gives_value(report) and not any(rank.isdecimal() and int(rank) for rank in ranks)
        self.folder = None if folder is None else Path(folder)
        self.checkpoint: Path | None = None
        self.step = 0
        for path in [] if self.folder is None else self.folder.glob("step-*"):
            step = path.name.removeprefix("step-").partition(".")[0]
            if step.isdecimal() and int(step) > self.step:
                self.checkpoint, self.step = path, int(step)

    def report(self, metrics: Mapping[str, object], name: str, step: int) -> bool:
        """Report the metric `name`, counting steps from 1, with the other numbers among `metrics`.
        True: the campaign stops the trial; always False in another process than the first one.

        Raises KeyError when there is no such metric.
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
        """Let `write` save a checkpoint at a path, rename it when it is complete, and remove the
        one before.

        Args:
            write: is called with a path that ends with `suffix`; nothing happens where the trial
                has no folder.
            step: the step after which the checkpoint is saved.
            suffix: by which the library chooses a format.
            all_write: whether all processes of a training call `write`, not only the first one.
        """
        if self.folder is None or not (self.is_first or all_write):
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        draft = self.folder / f"draft-{step}{suffix}"
        write(str(draft))
        self.keep(draft, step, suffix)

    def keep(self, draft: Path, step: int, suffix: str = "") -> None:
        """Move a complete checkpoint, a file or a folder on the same disk, and remove the one
        before, with drafts of attempts that ended while they saved."""
        if self.folder is None or not self.is_first:
            return
        before, complete = self.checkpoint, self.folder / f"step-{step}{suffix}"
        if complete.is_dir():  # left by an attempt that ended before it removed what it had replaced
            shutil.rmtree(complete)
        self.folder.mkdir(parents=True, exist_ok=True)
        draft.rename(complete)
        self.checkpoint, self.step = complete, step
        replaced = [before] if before is not None and before != complete else []
        for path in [*replaced, *self.folder.glob("draft-*")]:
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def _others(metrics: Mapping[str, object], name: str) -> dict[str, float]:
    """Return the numbers beside the metric `name` that a report can take, without spaces in their
    names, which separate the words of a printed report."""
    numbers = (("_".join(str(key).split()), number_of(metric)) for key, metric in metrics.items() if key != name)
    further = {
        key: number
        for key, number in numbers
        if number is not None and key not in ARGUMENTS and 0 < len(key) <= NAME_CHARACTERS
    }
    return dict(itertools.islice(further.items(), MOST_METRICS))


def _print_report(value: float, step: int | None = None, **metrics: float) -> None:
    """Print a report in a line of its own, also after a progress bar."""
    named = "".join(f" {name}={number!r}" for name, number in metrics.items())
    print(f"\nBBKB_REPORT {step} {value!r}{named}", flush=True)
