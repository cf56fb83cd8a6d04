"""The report: one self-contained HTML page that shows what happened in a campaign.

It shows what `orchestrator.history` folded from the log; what a terminal shows is in
`orchestrator.display`.
"""

from orchestrator.report.page import render, write_report

__all__ = ["render", "write_report"]
