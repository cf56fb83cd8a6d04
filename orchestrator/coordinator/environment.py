"""Ray's settings for campaigns: of a Ray that `bbkb` starts, and in every script and manifest that
it writes.

`deploy/ray.env` holds the same and explains each of them. `require_token` adds the token of a Ray
that this process starts, in a file that only this user can read and that is removed with the
process.
"""

import atexit
import os
import secrets
import shutil
import tempfile
from functools import cache
from pathlib import Path

# A node that stops answering is noticed soon, output is bounded, no usage reports.
RAY_SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_health_check_period_ms": "3000",
    "RAY_health_check_timeout_ms": "5000",
    "RAY_health_check_failure_threshold": "3",
    "RAY_grpc_client_keepalive_time_ms": "20000",
    "RAY_grpc_client_keepalive_timeout_ms": "10000",
    "RAY_ROTATION_MAX_BYTES": "16777216",
    "RAY_ROTATION_BACKUP_COUNT": "1",
}


def require_token() -> Path | None:
    """Configure a Ray that is about to start to require a token. The file that contains it; None
    when the environment already names a token or another method."""
    mode = os.environ.setdefault("RAY_AUTH_MODE", "token")
    if mode != "token" or "RAY_AUTH_TOKEN" in os.environ:
        return None
    if "RAY_AUTH_TOKEN_PATH" not in os.environ:
        os.environ["RAY_AUTH_TOKEN_PATH"] = str(_token_file())
    return Path(os.environ["RAY_AUTH_TOKEN_PATH"])


@cache
def _token_file() -> Path:
    """Create the file, once per process: Ray's own processes read it again and again."""
    folder = Path(tempfile.mkdtemp(prefix="bbkb-token-"))  # mode 0700
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    file = folder / "token"
    with open(os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w", encoding="ascii") as opened:
        opened.write(secrets.token_hex(32))
    return file
