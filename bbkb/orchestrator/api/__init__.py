"""Campaigns in Python: `tune`, `Campaign`, `Result` and `load`, for scripts, notebooks and Ray
jobs.

A campaign started here has the same settings, log, store, resume and report as one from a file.
Terminal output is in `bbkb.orchestrator.cli`; ask and tell without a campaign is in
`bbkb.orchestrator.ask_tell`.
"""
