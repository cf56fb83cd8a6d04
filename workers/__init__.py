"""How one evaluation is run, here or on a cluster. Imports `objectives` only.

When it runs, and whether it is tried again, is decided in `orchestrator.campaign`; everything of Ray is in `on_ray`.
"""
