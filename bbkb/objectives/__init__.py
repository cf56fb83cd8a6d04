"""Objectives, their search spaces and the sources of their data. Imports no other package of the
project.

The objectives that bbkb provides belong in `problems`. Limits, times and retries of evaluations
belong in `workers`. The names of objectives in a campaign file belong in `bbkb.orchestrator.settings`.
"""
