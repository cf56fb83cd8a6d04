"""Objectives, their search spaces and the sources of their data. Imports no
package of this project.

Limits, times and repetitions of evaluations belong in `workers`. The names of objectives in a
campaign file belong in `orchestrator.settings`.
"""
