"""The commands of `bbkb`: one module for each group, listed in `orchestrator.cli.main`.

A command reads its arguments, calls the code that does the work, and prints; it decides nothing
about a campaign.
"""
