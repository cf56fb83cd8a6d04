"""The execution of one evaluation, on this machine or on a cluster. Imports `objectives` only.

`orchestrator.campaign` decides when it runs and whether it is attempted again; all code for Ray is
in `on_ray`.
"""
