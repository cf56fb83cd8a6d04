"""One quiet local Ray cluster for all tests that need one. The environment is set before anything imports ray."""

import os
import secrets
import shutil
import tempfile
import warnings
from collections.abc import Iterator

import pytest

os.environ.update(
    RAY_USAGE_STATS_ENABLED="0",
    RAY_SCHEDULER_EVENTS="0",
    RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO="0",
    RAY_AUTH_MODE="token",  # Ray listens on every address of this machine
    RAY_AUTH_TOKEN=secrets.token_hex(32),
)
os.environ.pop("RAY_ADDRESS", None)


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[str]:
    """A local Ray with 4 logical CPUs that this process is connected to; its address."""
    import ray

    folder = tempfile.mkdtemp(prefix="bb", dir="/tmp")  # short: the path of a Unix socket ends at 107 bytes
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # Ray leaves log files and sockets to the collector
        context = ray.init(
            address="local",
            num_cpus=4,
            include_dashboard=False,
            log_to_driver=False,
            logging_level="ERROR",
            object_store_memory=150 * 2**20,
            _temp_dir=folder,
        )
    yield str(context.address_info["gcs_address"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        ray.shutdown()
    shutil.rmtree(folder, ignore_errors=True)
