"""Ask and tell: a strategy without a campaign, over the rows of an array or over a space, saved as
a file.

Campaigns, which run evaluations and record them, are in `orchestrator.session`; strategies are in
`orchestrator.bandit`.
"""
