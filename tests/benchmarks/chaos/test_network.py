"""Links that are cut. Where namespaces cannot be created (they need root), the message about it is
tested instead."""

import subprocess
import sys
from pathlib import Path

from benchmarks.chaos import network
from benchmarks.chaos.network import Cut, Network, cuts, cuts_report, is_possible, ray_settings

_CONNECT = "import socket, sys; socket.create_connection((sys.argv[1], 9000), timeout=2).close()"
_LISTEN = """
import socket
listening = socket.create_server(("", 9000))
print("listening", flush=True)
while True:
    listening.accept()[0].close()
"""


def spaces() -> str:
    return subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout


if is_possible():

    def test_nodes_reach_each_other_until_a_link_is_cut_and_again_when_it_is_healed() -> None:
        with Network(("head", "node1")) as made:
            listen = [*made.prefixes["node1"], sys.executable, "-c", _LISTEN]
            connect = [*made.prefixes["head"], sys.executable, "-c", _CONNECT, made.hosts["node1"]]

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
            names = [prefix[3] for prefix in made.prefixes.values()]
            assert all(name in spaces() for name in names)
        assert not any(name in spaces() for name in names)

else:

    def test_where_namespaces_cannot_be_made_the_report_says_so(tmp_path: Path) -> None:
        assert list(cuts(tmp_path, seed=0)) == []
        assert "cannot be made here" in cuts_report([])


def test_a_report_of_cuts_has_a_row_for_each_and_says_plainly_when_there_is_none() -> None:
    found = [Cut("actor", None, 2, (30.0, 40.0), 1, ()), Cut("task", 5.0, 2, (), 0, ("it hung",))]
    rows = cuts_report(found).splitlines()[2:]
    assert rows == [
        "| actor | never | 2 | 35.0 | 40.0 | 1 | none |",
        "| task | 5 | 2 | not needed |  | 0 | it hung |",
    ]
    assert "not run" in cuts_report([])


def test_nodes_of_the_chaos_cluster_have_the_settings_of_deploy_ray_env() -> None:
    shipped = ray_settings(Path(network.__file__).parents[2] / "deploy" / "ray.env")
    assert shipped["RAY_health_check_failure_threshold"] == "3"
    assert not any(name.startswith("#") or not name for name in shipped)
