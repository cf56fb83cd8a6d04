"""Builds the Grafana dashboard of a campaign: `python deploy/grafana/dashboard.py >
deploy/grafana/bbkb.json`."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_ONE = '{campaign=~"$campaign"}'
_WIDTH, _HEIGHT = 12, 8  # of a panel; a row is 24 wide


@dataclass(frozen=True)
class Panel:
    """A picture: its title, its unit as Grafana names it, and query → legend."""

    title: str
    unit: str
    queries: dict[str, str]


PANELS = (
    Panel("Best value", "none", {f"max by (campaign) (ray_bbkb_best_value{_ONE})": "{{campaign}}"}),
    Panel(
        "Evaluations a minute",
        "none",
        {f"60 * sum by (campaign, status) (rate(ray_bbkb_evaluations_total{_ONE}[5m]))": "{{campaign}} {{status}}"},
    ),
    Panel(
        "Workers",
        "none",
        {
            f"max by (campaign) (ray_bbkb_workers{_ONE})": "{{campaign}} workers",
            f"max by (campaign) (ray_bbkb_in_flight{_ONE})": "{{campaign}} running",
            f"max by (campaign) (ray_bbkb_backlog{_ONE})": "{{campaign}} queued",
        },
    ),
    Panel("Utilization", "percentunit", {f"max by (campaign) (ray_bbkb_utilization{_ONE})": "{{campaign}}"}),
    Panel(
        "Idle workers by cause",
        "none",
        {f"sum by (campaign, cause) (rate(ray_bbkb_idle_seconds_total{_ONE}[5m]))": "{{campaign}} {{cause}}"},
    ),
    Panel(
        "Refits, 95 %",
        "s",
        {
            "histogram_quantile(0.95, sum by (campaign, le) "
            f"(rate(ray_bbkb_refit_seconds_bucket{_ONE}[10m])))": "{{campaign}}"
        },
    ),
    Panel(
        "Commits to the store, 95 %",
        "s",
        {
            "histogram_quantile(0.95, sum by (campaign, le) "
            f"(rate(ray_bbkb_store_commit_seconds_bucket{_ONE}[10m])))": "{{campaign}}"
        },
    ),
)


def queries() -> Iterator[str]:
    """Every query of the dashboard."""
    for panel in PANELS:
        yield from panel.queries


def dashboard() -> dict[str, Any]:
    """The dashboard as Grafana reads it."""
    source = {"type": "prometheus", "uid": "${datasource}"}
    campaign = {
        "name": "campaign",
        "type": "query",
        "datasource": source,
        "query": "label_values(ray_bbkb_workers, campaign)",
        "includeAll": True,
        "multi": True,
        "refresh": 2,
    }
    return {
        "title": "bbkb campaigns",
        "uid": "bbkb-campaigns",
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [{"name": "datasource", "type": "datasource", "query": "prometheus"}, campaign]},
        "panels": [_panel(number, panel, source) for number, panel in enumerate(PANELS)],
    }


def _panel(number: int, panel: Panel, source: dict[str, str]) -> dict[str, Any]:
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": panel.title,
        "datasource": source,
        "fieldConfig": {"defaults": {"unit": panel.unit}, "overrides": []},
        "gridPos": {"x": number % 2 * _WIDTH, "y": number // 2 * _HEIGHT, "w": _WIDTH, "h": _HEIGHT},
        "targets": [
            {"refId": chr(ord("A") + place), "expr": query, "legendFormat": legend}
            for place, (query, legend) in enumerate(panel.queries.items())
        ],
    }


if __name__ == "__main__":
    print(json.dumps(dashboard(), indent=2))
