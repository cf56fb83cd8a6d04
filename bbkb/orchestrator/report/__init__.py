"""The report: a self-contained HTML page about a campaign.

It shows the tables of `bbkb.orchestrator.history`. Terminal output is in `bbkb.orchestrator.display`.
"""

from bbkb.orchestrator.report.page import render, write_report
from bbkb.orchestrator.report.static import static_pictures

__all__ = ["render", "static_pictures", "write_report"]
