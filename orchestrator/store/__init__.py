"""The event log on SQLite or PostgreSQL: appending, claiming and leasing a campaign, run folders, verification.

What an event means is decided in `orchestrator.campaign`; tables made of a log are in `orchestrator.history`.
"""
