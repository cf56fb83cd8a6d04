"""Limits of Ray that matter to tests."""

import sys

import pytest

# Ray does not quote the commands of its client server, and of workers with a runtime environment
NEEDS_PATH_WITHOUT_SPACES = pytest.mark.skipif(
    " " in sys.executable, reason="Ray starts no such process when the path of Python has a space"
)
