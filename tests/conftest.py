"""Fixtures that tests of several packages share: one quiet local Ray cluster, and the available
databases.

The environment is set before anything imports ray or NumPy.
"""

import logging
import os
import secrets
import shutil
import signal
import tempfile
import uuid
import warnings
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

from tests import postgresql
from tests.examples import examples

os.environ.update(
    RAY_USAGE_STATS_ENABLED="0",
    RAY_SCHEDULER_EVENTS="0",
    RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO="0",
    RAY_AUTH_MODE="token",  # Ray listens on every address of this machine
    RAY_AUTH_TOKEN=secrets.token_hex(32),
)
os.environ.pop("RAY_ADDRESS", None)
# threads of BLAS that wait for a busy core make small products of matrices ten times slower
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["XDG_CONFIG_HOME"] = tempfile.mkdtemp(prefix="bbkb-config-")  # not the user's configuration

_BENCHMARKS = Path(__file__).parent / "benchmarks"
SLOW_FIXTURES = {"ray_cluster", "postgresql_server"}  # a cluster, or a server of the test's own


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--quick`, which `make test` uses and `make test-all` does not."""
    parser.addoption(
        "--quick",
        action="store_true",
        help="leave out tests marked `thorough` and those on a cluster that are not marked `essential`; fewer examples",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Keep temporary folders in memory if it has room, where a store need not wait for a disk.
    Set the number of examples of hypothesis, and remove its deadline.

    Every run tries the same examples, so a failure is a failure of the code. `make fuzz`
    (`-m fuzz`) looks for new ones.
    """
    memory = os.statvfs("/dev/shm") if os.access("/dev/shm", os.W_OK) else None  # scripts of tests are executed there
    if memory and memory.f_bavail * memory.f_frsize >= 4 * 2**30 and not memory.f_flag & os.ST_NOEXEC:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", "/dev/shm")
    if config.getoption("--quick"):
        os.environ["BBKB_TEST_QUICK"] = "1"  # read by `examples`
    hypothesis.settings.register_profile(
        "untimed", deadline=None, max_examples=examples(60), derandomize=config.getoption("-m") != "fuzz"
    )
    hypothesis.settings.load_profile("untimed")


@pytest.fixture(scope="session", autouse=True)
def default_signal_handlers() -> Iterator[None]:
    """Handle SIGINT and SIGTERM as in the foreground, here and in child processes, which inherit
    ignored signals.

    A background job of a non-interactive shell ignores SIGINT. Tests send both signals to
    themselves and to children. SIGHUP stays ignored under `nohup`: the tests have to outlive the
    terminal.
    """
    before_interrupt = signal.signal(signal.SIGINT, signal.default_int_handler)
    before_termination = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGINT, before_interrupt)
    signal.signal(signal.SIGTERM, before_termination)


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[str]:
    """The address of a local Ray with 4 logical CPUs and 2 logical GPUs, to which this process is
    connected."""
    import ray

    folder = tempfile.mkdtemp(prefix="bb", dir="/tmp")  # short: the path of a Unix socket ends at 107 bytes
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # Ray leaves log files and sockets to the collector
        ray.init(
            address="local",
            num_cpus=4,
            num_gpus=2,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
            object_store_memory=150 * 2**20,
            _temp_dir=folder,
        )
    yield str(ray.get_runtime_context().gcs_address)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        ray.shutdown()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def short_folder() -> Iterator[str]:
    """A folder for a Ray of the test's own: the path of a Unix socket ends at 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="bb", dir="/tmp", ignore_cleanup_errors=True) as folder:
        yield folder


def pytest_report_header() -> str:
    """Report the databases on which the store is tested."""
    return f"databases: {', '.join(postgresql.databases())} (BBKB_TEST_POSTGRESQL={postgresql.WANTED or 'not set'})"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave the tests of the benchmarks, which test nothing that is shipped, out of `--quick`."""
    return True if collection_path == _BENCHMARKS and config.getoption("--quick") else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect tests that `--quick` excludes, and tests that kill a PostgreSQL server if no server
    is installed."""
    left_out = {item for item in items if config.getoption("--quick") and _is_thorough(item)}
    if postgresql.binaries() is None:
        left_out |= {item for item in items if "postgresql_server" in _fixtures_of(item)}
    if left_out:
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = [item for item in items if item not in left_out]


def _is_thorough(item: pytest.Item) -> bool:
    """Return whether only `make test-all` runs a test."""
    if item.get_closest_marker("essential") is not None:
        return False
    return item.get_closest_marker("thorough") is not None or not SLOW_FIXTURES.isdisjoint(_fixtures_of(item))


def _fixtures_of(item: pytest.Item) -> list[str]:
    return list(getattr(item, "fixturenames", ()))


@pytest.fixture(scope="session")
def postgresql_url() -> Iterator[str]:
    """A PostgreSQL server that tests share, and that none of them kills."""
    if postgresql.URL:
        yield postgresql.URL
        return
    server = postgresql.Server()
    try:
        server.start()
        yield server.url
    finally:
        server.close()


@pytest.fixture
def postgresql_server() -> Iterator[postgresql.Server]:
    """A running PostgreSQL server for a single test, which may kill it."""
    server = postgresql.Server()
    try:
        server.start()
        yield server
    finally:
        server.close()


@pytest.fixture(params=postgresql.databases())
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a store on each available database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'campaign.sqlite'}"
    return str(request.getfixturevalue("postgresql_url"))


@pytest.fixture
def campaign() -> str:
    """A name that no campaign in any database has."""
    return f"test-{uuid.uuid4()}"
