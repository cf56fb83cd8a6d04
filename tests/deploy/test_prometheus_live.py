"""A real Prometheus beside a running campaign: it finds Ray's nodes by the shipped configuration,
every query of the dashboard and every metric of the alerts has series, and the rules are evaluated
without an error."""

import functools
import json
import re
import runpy
import shutil
import sys
import tempfile
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.live_ray import REPOSITORY, free_ports, head, process_running
from tests.deploy.namespaces import wait_for

DEPLOY = REPOSITORY / "deploy"
QUERIES = [
    query.replace("$campaign", ".*") for query in runpy.run_path(str(DEPLOY / "grafana" / "dashboard.py"))["queries"]()
]
CAMPAIGN = """
name: scraped
objective: {callable: "short:evaluate", direction: maximize}
space: {x: {low: 0.0, high: 1.0}}
budget: {evaluations: 5000}
workers: {count: 2}
"""
OBJECTIVE = """
import time

def evaluate(x, seed):
    time.sleep(0.3)
    return x
"""
pytestmark = [
    pytest.mark.deploy,
    pytest.mark.timeout(900),
    pytest.mark.skipif(shutil.which("prometheus") is None, reason="needs prometheus"),
]


@pytest.fixture(scope="module")
def prometheus() -> Iterator[str]:
    """The address of a Prometheus that scrapes a Ray on which a campaign runs."""
    folder = Path(tempfile.mkdtemp(prefix="bp", dir="/tmp"))  # short: the path of a socket ends at 107 bytes
    (folder / "short.py").write_text(OBJECTIVE)
    (folder / "campaign.yaml").write_text(CAMPAIGN)
    try:
        with ExitStack() as stack:
            ports = stack.enter_context(head(folder))
            address = f"127.0.0.1:{ports['port']}"
            command = ["bbkb", "run", "campaign.yaml", "--address", address, "--run", "first"]
            stack.enter_context(process_running(folder, "campaign", [sys.executable, "-m", *command]))
            yield stack.enter_context(_prometheus(folder))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _prometheus(folder: Path) -> Iterator[str]:
    """With the shipped files, but this Ray's folder and shorter intervals."""
    shutil.copy(DEPLOY / "prometheus" / "alerts.yml", folder)
    text = (DEPLOY / "prometheus" / "prometheus.yml").read_text()
    text = text.replace("/tmp/ray/", f"{folder / 'r'}/").replace("15s", "1s").replace("30s", "1s")
    (folder / "prometheus.yml").write_text(text)
    address = f"127.0.0.1:{free_ports(1)[0]}"
    files = [f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}"]
    with process_running(folder, "prometheus", ["prometheus", *files, f"--web.listen-address={address}"]):
        yield address


def _query(address: str, path: str, **query: str) -> Any:
    """Return Prometheus' answer; nothing while it starts."""
    try:
        with urllib.request.urlopen(f"http://{address}/api/v1/{path}?{urllib.parse.urlencode(query)}") as answer:
            return json.load(answer)["data"]
    except OSError:
        return {"result": [], "groups": []}


def _has_series(address: str, query: str) -> bool:
    return bool(_query(address, "query", query=query)["result"])


@pytest.mark.parametrize("query", QUERIES)
def test_dashboard_queries_have_series_while_a_campaign_runs(prometheus: str, query: str) -> None:
    wait_for(lambda: _has_series(prometheus, query), f"series of {query}", 200.0)


def test_alerts_have_series_for_every_metric_and_no_rule_fails(prometheus: str) -> None:
    for metric in sorted(set(re.findall(r"ray_bbkb_\w+", (DEPLOY / "prometheus" / "alerts.yml").read_text()))):
        wait_for(functools.partial(_has_series, prometheus, metric), f"series of {metric}", 200.0)

    def rules() -> list[dict[str, Any]]:
        groups = _query(prometheus, "rules")["groups"]
        return [rule for group in groups for rule in group["rules"]]

    wait_for(lambda: rules() and all(rule["health"] != "unknown" for rule in rules()), "evaluation of the rules")
    assert [rule["name"] for rule in rules() if rule["health"] != "ok" or rule.get("lastError")] == []
    assert [rule["name"] for rule in rules() if rule.get("state") == "firing"] == []
