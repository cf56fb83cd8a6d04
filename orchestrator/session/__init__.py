"""One run of the loop: assembling a campaign from its settings and driving it.

`orchestrator.campaign` decides what to do next; `workers` runs one evaluation; the Ray actor around
a session is in `orchestrator.running.coordinator`.
"""
