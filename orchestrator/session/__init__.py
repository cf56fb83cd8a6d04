"""One run of the loop: assembling a campaign from its settings, driving it, and the central Ray actor around it.

`orchestrator.campaign` decides what to do next; `workers` runs one evaluation.
"""
