"""Writes files atomically: a draft beside the target is synced and then renamed to it.

The project writes all files with these functions. After a full disk, a kill or a second writer, a
file therefore has either its old or its new content. Each draft has a unique name, so two writers
never use the same one.
"""

import contextlib
import errno
import os
import stat
import uuid
from collections.abc import Iterable
from pathlib import Path

PRIVATE_FILE = 0o600
PRIVATE_FOLDER = 0o700
_ORDINARY_FILE = 0o666  # minus the user's umask


def write_text(path: Path, text: str, *, is_private: bool = True) -> None:
    """Write `text` as UTF-8; see `write_bytes`."""
    write_bytes(path, text.encode("utf-8"), is_private=is_private)


def write_bytes(path: Path, content: bytes, *, is_private: bool = True) -> None:
    """Replace the content of `path`; see `write_parts`."""
    write_parts(path, (content,), is_private=is_private)


def write_parts(path: Path, parts: Iterable[bytes], *, is_private: bool = True) -> None:
    """Replace the content of `path` durably by `parts`.

    The target of a symbolic link is replaced. A device or a pipe is written directly. With
    `is_private`, only the owner can read the file; otherwise the umask applies. Raises OSError if
    the file cannot be written; the old content is then unchanged, and no draft remains.
    """
    try:
        is_special = not stat.S_ISREG(path.stat().st_mode)
    except FileNotFoundError:
        is_special = False
    if is_special:
        descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK)  # a pipe without a reader must not block
        with open(descriptor, "wb") as file:
            os.set_blocking(descriptor, True)
            file.writelines(parts)
        return
    target = Path(os.path.realpath(path))
    draft = target.with_name(f".{target.name[:100]}.{uuid.uuid4().hex}.draft")
    mode = PRIVATE_FILE if is_private else _ORDINARY_FILE
    try:
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.writelines(parts)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, target)
    except BaseException:
        with contextlib.suppress(OSError):  # the first error is the important one
            draft.unlink()
        raise
    with contextlib.suppress(OSError):  # a folder cannot be synced on every file system; the content is safe anyway
        descriptor = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(descriptor)  # makes the rename durable
        finally:
            os.close(descriptor)


def read_small(path: Path, most_bytes: int) -> bytes:
    """Return the content of a regular file.

    Raises OSError if it cannot be read, has more than `most_bytes`, or is a pipe or a device, which
    might never end.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe without a writer must not block
    with open(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", str(path))
        if status.st_size > most_bytes:
            raise OSError(errno.EFBIG, f"it has {status.st_size:,} bytes, more than {most_bytes:,}", str(path))
        return file.read(most_bytes)


def make_private(path: Path) -> None:
    """Create an empty file that only its owner can read, unless it exists. Raises OSError.

    An existing file is not opened: closing it would release the locks of this process on it, with
    which SQLite protects a database that another thread uses.
    """
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE_FILE))
