"""Rules and queries for Prometheus: promtool accepts them, alerts fire when they should, every metric exists, and a
real Prometheus beside a running campaign has series for all of them."""

import functools
import json
import re
import runpy
import shutil
import subprocess
import sys
import tempfile
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from bbkb.orchestrator.running.coordinator.starting import DESCRIPTIONS
from tests.deploy.live_ray import REPOSITORY, free_ports, head, process_running
from tests.deploy.namespaces import wait_for

DEPLOY = REPOSITORY / "deploy"
BUILT = runpy.run_path(str(DEPLOY / "grafana" / "dashboard.py"))
QUERIES = [query.replace("$campaign", ".*") for query in BUILT["queries"]()]
needs_promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool, of Debian's prometheus")
needs_prometheus = pytest.mark.skipif(shutil.which("prometheus") is None, reason="needs prometheus")


def promtool(*arguments: str) -> None:
    done = subprocess.run(
        ["promtool", *arguments], cwd=DEPLOY / "prometheus", capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
def test_configuration_and_rules_are_sound_and_alerts_fire_when_they_should() -> None:
    promtool("check", "config", "prometheus.yml")
    promtool("test", "rules", "alerts.test.yml")


@needs_promtool
def test_dashboard_queries_are_valid(tmp_path: Path) -> None:
    rules = [{"record": f"panel:{number}", "expr": query} for number, query in enumerate(QUERIES)]
    file = tmp_path / "queries.yml"
    file.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    promtool("check", "rules", str(file))


def test_dashboard_in_deploy_matches_the_code_that_builds_it() -> None:
    assert json.loads((DEPLOY / "grafana" / "bbkb.json").read_text()) == BUILT["dashboard"]()


def test_alerts_and_dashboard_name_existing_metrics() -> None:
    text = (DEPLOY / "prometheus" / "alerts.yml").read_text() + "\n".join(BUILT["queries"]())
    named = set(re.findall(r"ray_(bbkb_\w+)", text))
    endings = ("", "_total", "_sum", "_count", "_bucket")
    assert named <= {name + ending for name in DESCRIPTIONS for ending in endings}
    assert {name for name in DESCRIPTIONS if not any(metric.startswith(name) for metric in named)} == set()


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


@pytest.mark.deploy
@pytest.mark.timeout(900)
@needs_prometheus
@pytest.mark.parametrize("query", QUERIES)
def test_dashboard_queries_have_series_while_a_campaign_runs(prometheus: str, query: str) -> None:
    wait_for(lambda: _has_series(prometheus, query), f"series of {query}", 200.0)


@pytest.mark.deploy
@pytest.mark.timeout(900)
@needs_prometheus
def test_alerts_have_series_for_every_metric_and_no_rule_fails(prometheus: str) -> None:
    for metric in sorted(set(re.findall(r"ray_bbkb_\w+", (DEPLOY / "prometheus" / "alerts.yml").read_text()))):
        wait_for(functools.partial(_has_series, prometheus, metric), f"series of {metric}", 200.0)

    def rules() -> list[dict[str, Any]]:
        groups = _query(prometheus, "rules")["groups"]
        return [rule for group in groups for rule in group["rules"]]

    wait_for(lambda: rules() and all(rule["health"] != "unknown" for rule in rules()), "evaluation of the rules")
    assert [rule["name"] for rule in rules() if rule["health"] != "ok" or rule.get("lastError")] == []
    assert [rule["name"] for rule in rules() if rule.get("state") == "firing"] == []
