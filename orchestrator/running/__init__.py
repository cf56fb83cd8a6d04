"""Running, resuming and following a campaign: what the commands and the Python API both call. On
Ray, a session runs in the actor of `coordinator`.

One session of the loop is in `orchestrator.session`; what a terminal shows of it is in
`orchestrator.display`.
"""
