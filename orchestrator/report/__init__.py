"""The report: a self-contained HTML page about a campaign.

It shows the tables of `orchestrator.history`. Terminal output is in `orchestrator.display`.
"""

from orchestrator.report.page import render, write_report
from orchestrator.report.static import static_pictures

__all__ = ["render", "static_pictures", "write_report"]
