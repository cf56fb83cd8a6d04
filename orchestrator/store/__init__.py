"""The event log on SQLite or PostgreSQL: appending, claiming and leasing a campaign, run folders,
verification.

`orchestrator.campaign` defines the meaning of the events; `orchestrator.history` derives tables
from a log.
"""
