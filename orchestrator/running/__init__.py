"""Running, resuming and following a campaign: what the commands and the Python API both call.

One session of the loop is in `orchestrator.session`; what a terminal shows of it is in
`orchestrator.display`.
"""
