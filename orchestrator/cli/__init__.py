"""The terminal: the commands and what only they print.

Code here only prints or parses: running, resuming and following a campaign are in
`orchestrator.running`, the live view is in `orchestrator.display`.
"""
