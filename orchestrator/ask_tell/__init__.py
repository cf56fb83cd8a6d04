"""Ask and tell: a campaign in memory, over the rows of an array or over a space, saved as a file.

Campaigns, which run evaluations and store their events, are in `orchestrator.session`; strategies
are in `orchestrator.bandit`.
"""
