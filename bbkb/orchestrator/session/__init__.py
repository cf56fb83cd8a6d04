"""One run of the loop: builds a campaign from its settings and drives it.

`bbkb.orchestrator.campaign` decides the next step; `workers` runs single evaluations; the Ray actor that
hosts a session is in `bbkb.orchestrator.running.coordinator`.
"""
