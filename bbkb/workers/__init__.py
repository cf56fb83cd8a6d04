"""The execution of one evaluation, on this machine or on a cluster. Imports `objectives` only.

`bbkb.orchestrator.campaign` decides when an evaluation runs and whether it is retried. All code for Ray
is in `on_ray`.
"""
