"""Running, resuming and following a campaign: the common code of the commands and the Python API.
On Ray, a session runs in the actor of `coordinator`.

The loop of a session is in `bbkb.orchestrator.session`, and its display in `bbkb.orchestrator.report`.
"""
