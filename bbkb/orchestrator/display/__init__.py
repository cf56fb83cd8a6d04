"""The live view of a campaign and its consoles, for terminals, notebooks and programs.

The commands are in `bbkb.orchestrator.cli`; the web page of running campaigns is in
`bbkb.orchestrator.serve`.
"""
