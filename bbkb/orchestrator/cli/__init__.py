"""The commands and their output.

This code only parses arguments and prints. Running, resuming and following a campaign are in
`bbkb.orchestrator.running`, and the live view is in `bbkb.orchestrator.report.terminal`.
"""
