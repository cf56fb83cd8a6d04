"""Rules and queries for Prometheus: promtool accepts them, alerts fire when they should, and every
metric exists."""

import json
import re
import runpy
import shutil
import subprocess
from pathlib import Path

import pytest

from bbkb.orchestrator.running.coordinator.starting import DESCRIPTIONS

DEPLOY = Path(__file__).parents[2] / "deploy"
BUILT = runpy.run_path(str(DEPLOY / "grafana" / "dashboard.py"))
needs_promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool, of Debian's prometheus")


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
    queries = [query.replace("$campaign", ".*") for query in BUILT["queries"]()]
    rules = [{"record": f"panel:{number}", "expr": query} for number, query in enumerate(queries)]
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
