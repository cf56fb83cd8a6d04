"""The commands and their output.

This code only parses arguments and prints. Running, resuming and following a campaign are in
`orchestrator.running`, and the live view is in `orchestrator.display`.
"""
