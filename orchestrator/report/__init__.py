"""The report: one self-contained HTML page that shows what happened in a campaign."""

from orchestrator.report.page import render, write_report

__all__ = ["render", "write_report"]
