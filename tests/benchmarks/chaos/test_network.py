"""Links that are cut."""

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.chaos import network
from benchmarks.chaos.network import Cut, cuts_report, ray_settings
from tests.deploy.namespaces import Machines, missing

_CONNECT = "import socket, sys; socket.create_connection((sys.argv[1], 9000), timeout=2).close()"
_LISTEN = """
import socket
listening = socket.create_server(("", 9000))
print("listening", flush=True)
while True:
    listening.accept()[0].close()
"""


@pytest.mark.skipif(bool(missing()), reason=missing() or "none")
def test_machines_reach_each_other_unless_the_link_is_cut(tmp_path: Path) -> None:
    with Machines(("head", "node1"), "10.79.0", tmp_path) as made:
        listen = [*made.inside("node1"), sys.executable, "-c", _LISTEN]
        connect = [*made.inside("head"), sys.executable, "-c", _CONNECT, made.addresses["node1"]]

        def is_reachable() -> bool:
            return subprocess.run(connect, capture_output=True, check=False).returncode == 0

        with subprocess.Popen(listen, stdout=subprocess.PIPE) as listening:
            try:
                assert listening.stdout is not None
                listening.stdout.readline()
                assert is_reachable()
                made.cut("node1")
                assert not is_reachable()
                made.heal("node1")
                assert is_reachable()
            finally:
                listening.kill()


def test_cuts_report_has_a_row_for_each_cut() -> None:
    found = [Cut("actor", None, 2, (30.0, 40.0), 1, ()), Cut("task", 5.0, 2, (), 0, ("it hung",))]
    rows = cuts_report(found).splitlines()[2:]
    assert rows == [
        "| actor | never | 2 | 35.0 | 40.0 | 1 | none |",
        "| task | 5 | 2 | not needed |  | 0 | it hung |",
    ]
    assert "not run" in cuts_report([])


def test_chaos_cluster_has_the_settings_of_deploy_ray_env() -> None:
    shipped = ray_settings(Path(network.__file__).parents[2] / "deploy" / "ray.env")
    assert shipped["RAY_health_check_failure_threshold"] == "3"
    assert not any(name.startswith("#") or not name for name in shipped)
