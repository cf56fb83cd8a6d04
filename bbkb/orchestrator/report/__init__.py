"""The page of a campaign, in the report and while it runs, and figures for notebooks.

No module here makes a decision or writes to the log.
"""

from bbkb.orchestrator.report.page import render, write_report

__all__ = ["render", "write_report"]
