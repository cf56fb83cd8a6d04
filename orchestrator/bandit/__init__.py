"""The functional core: which arm next. Pure functions on frozen values; no I/O, clock, logging or global randomness.

What to do with a choice (budget, retries, dispatch) is decided in `orchestrator.campaign`.
"""
