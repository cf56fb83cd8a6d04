"""The token of a Ray that this process starts, in a file that only this user can read and that is removed with the
process."""

import atexit
import os
import secrets
import shutil
import tempfile
from functools import cache
from pathlib import Path


def require_token() -> Path | None:
    """Configure a Ray that is about to start to require a token. The file that contains it; None when the environment
    already names a token or another method."""
    mode = os.environ.setdefault("RAY_AUTH_MODE", "token")
    if mode != "token" or "RAY_AUTH_TOKEN" in os.environ:
        return None
    if "RAY_AUTH_TOKEN_PATH" not in os.environ:
        os.environ["RAY_AUTH_TOKEN_PATH"] = str(_token_file())
    return Path(os.environ["RAY_AUTH_TOKEN_PATH"])


@cache
def _token_file() -> Path:
    """One a process: Ray's own processes read it again and again."""
    folder = Path(tempfile.mkdtemp(prefix="bbkb-token-"))  # mode 0700
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    file = folder / "token"
    with open(os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w", encoding="ascii") as opened:
        opened.write(secrets.token_hex(32))
    return file
