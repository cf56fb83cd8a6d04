"""Python in a process of its own, with this repository on its path."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[1]
SOON: dict[str, Any] = {  # settings with which Ray soon notices the death of a node
    "RAY_health_check_initial_delay_ms": "0",
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_timeout_ms": "1000",
    "RAY_health_check_failure_threshold": "3",
}


def run_python(
    *arguments: str, cwd: Path | None = None, seconds: float = 240.0, **variables: str
) -> "subprocess.CompletedProcess[str]":  # fmt: skip
    """Run Python with these arguments and additional environment variables."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), **variables},
        capture_output=True,
        text=True,
        timeout=seconds,
    )
