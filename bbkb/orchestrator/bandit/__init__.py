"""The functional core, which chooses the next arms. Pure functions on frozen values; no I/O, clock,
logging or global randomness.

`bbkb.orchestrator.campaign` decides what to do with a choice (budget, retries, dispatch).
"""
