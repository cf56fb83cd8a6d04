"""The event log on SQLite or PostgreSQL: appending, claiming and leasing a campaign, run folders,
verification.

`bbkb.orchestrator.campaign` defines the meaning of the events; `bbkb.orchestrator.history` derives tables
from a log.
"""
