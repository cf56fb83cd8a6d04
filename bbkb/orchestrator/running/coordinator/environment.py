"""Ray's environment: the specified cluster, whether it answers, and the token of a Ray that this
process starts.

The token is in a file that only this user can read. The process removes the file when it exits; if
it is killed, the next process removes it.
"""

import atexit
import contextlib
import os
import secrets
import shutil
import socket
import ssl
import tempfile
from functools import cache
from pathlib import Path

from bbkb.orchestrator.errors import UserError
from bbkb.orchestrator.store.lease import Identity

# the folder of a token, and the files in it
_PREFIX = "bbkb-token-"
_TOKEN = "token"
_OWNER = "owner"
_PROBE_SECONDS = 5.0  # the longest wait for a connection, and for its answer


def named_cluster(address: str | None) -> str | None:
    """Return the address of the cluster to join (`address`, else RAY_ADDRESS); None to start a
    cluster."""
    named = address or os.environ.get("RAY_ADDRESS") or "local"
    return None if named == "local" else named


def probe(address: str) -> None:
    """Raise UserError if nothing listens at `address`. Ray itself would retry for half a minute."""
    host, _, port = address.rpartition(":")
    # a larger port is not refused by the resolver, which keeps its last 16 bits
    if "://" in address or not host or not port.isdecimal() or int(port) > 65535:
        raise UserError(
            f"--address (or RAY_ADDRESS) must be host:port of a cluster's head, or auto, got {address!r}; "
            "to work from outside a cluster, hand the campaign to it with `ray job submit`"
        )
    try:
        connection = socket.create_connection((host.strip("[]"), int(port)), timeout=_PROBE_SECONDS)
    except OSError as error:
        raise UserError(
            f"--address (or RAY_ADDRESS) must name a running Ray cluster, got {address}: {error}; "
            "start one with `ray start --head`, or leave the address out to use this machine"
        ) from error
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # Ray checks the certificate later
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    try:
        with connection, context.wrap_socket(connection):
            has_tls = True
    except OSError:
        has_tls = False
    wants_tls = os.environ.get("RAY_USE_TLS", "").lower() in ("1", "true")
    if has_tls and not wants_tls:
        raise UserError(
            f"the Ray cluster at {address} uses TLS, so RAY_USE_TLS must be 1, with RAY_TLS_CA_CERT, "
            "RAY_TLS_SERVER_CERT and RAY_TLS_SERVER_KEY: source the .env file of this machine (docs/security.md)"
        )
    if wants_tls and not has_tls:
        raise UserError(
            f"RAY_USE_TLS must be 0 for a Ray cluster without TLS, got 1, and {address} has no TLS: unset it, or "
            "start the cluster with TLS"
        )


def require_token() -> Path | None:
    """Configure the Ray that is about to start to require a token. Return the file that contains
    the token; None if the environment already specifies a token or another method."""
    # Ray sets the variable itself if it is not set, and then reads its environment again
    if os.environ.get("RAY_AUTH_MODE", "token") != "token" or "RAY_AUTH_TOKEN" in os.environ:
        return None
    if "RAY_AUTH_TOKEN_PATH" not in os.environ:
        os.environ["RAY_AUTH_TOKEN_PATH"] = str(_token_file())
    return Path(os.environ["RAY_AUTH_TOKEN_PATH"])


@cache
def _token_file() -> Path:
    """Create the file, once per process: Ray's own processes read it repeatedly. Remove the folders of
    killed processes whose Ray has ended."""
    # a Ray may outlive the process that started it, so tokens in the environments of processes stay
    prefix = b"RAY_AUTH_TOKEN_PATH="
    named = set()
    for environment in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):  # another user's process, or one that has just ended
            variables = environment.read_bytes().split(b"\0")
            named |= {os.fsdecode(each.removeprefix(prefix)) for each in variables if each.startswith(prefix)}
    here = Identity.of_this_process().space
    for left in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        try:
            owner = Identity.read((left / _OWNER).read_text(encoding="utf-8"))
        except OSError:  # another user's folder, or one that is still being created
            continue
        if owner is not None and owner.is_alive(here) is False and str(left / _TOKEN) not in named:
            shutil.rmtree(left, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX))  # mode 0700
    (folder / _OWNER).write_text(Identity.of_this_process().to_text(), encoding="utf-8")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    file = folder / _TOKEN
    with open(os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w", encoding="ascii") as opened:
        opened.write(secrets.token_hex(32))
    return file
