"""One run of the loop: builds a campaign from its settings and drives it.

`orchestrator.campaign` decides the next step; `workers` runs single evaluations; the Ray actor that
hosts a session is in `orchestrator.running.coordinator`.
"""
