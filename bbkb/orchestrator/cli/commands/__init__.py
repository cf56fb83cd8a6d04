"""The commands of `bbkb`: one module for each group, listed in `bbkb.orchestrator.cli.main`.

A command parses its arguments, calls the code that does the work, and prints the result. It makes
no decision about a campaign.
"""
