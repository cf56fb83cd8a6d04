"""The source of data sets for objectives that read them: the user's data folder, or a download."""

import os
from dataclasses import dataclass
from pathlib import Path

from bbkb.objectives.objective import ObjectiveError

FOLDER_VARIABLE = "BBKB_DATA"


@dataclass(frozen=True, slots=True)
class DataSource:
    """The user's data folder, if there is one, and whether a data set that it lacks may be
    downloaded."""

    folder: Path | None = None
    may_download: bool = False

    @classmethod
    def find(cls, folder: Path | None = None, may_download: bool = False) -> "DataSource":
        """Return `folder`, or the one in the environment variable BBKB_DATA if it is not given."""
        named = folder or os.environ.get(FOLDER_VARIABLE) or None
        return cls(Path(named).expanduser() if named else None, may_download)

    def file(self, name: str) -> Path | None:
        """Return the path of `name` in the folder; None if it is not there. Raises ObjectiveError
        if a folder is specified and does not exist, because other data must not replace it."""
        if self.folder is not None and not self.folder.is_dir():
            raise ObjectiveError(
                f"data.folder (or {FOLDER_VARIABLE} in the environment) must name a folder, and there is none at "
                f"{self.folder}: correct the path, or remove the setting to use data that need no folder"
            )
        path = self.folder / name if self.folder else None
        return path if path and path.is_file() else None
