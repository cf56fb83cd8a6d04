"""The event log on SQLite or PostgreSQL: appending, claiming and leasing a campaign, run folders,
verification.

`orchestrator.campaign` defines the meaning of an event; tables made of a log are in
`orchestrator.history`.
"""
