"""Ask and tell: a campaign in memory, over the rows of an array or over a space.

Campaigns, which run evaluations and store their events, are in `bbkb.orchestrator.session`; strategies
are in `bbkb.orchestrator.bandit`.
"""
