"""Ask and tell: a campaign in memory, over the rows of an array or over a space.

Campaigns, which run evaluations and store their events, are in `orchestrator.session`; strategies
are in `orchestrator.bandit`.
"""
