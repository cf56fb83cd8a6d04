"""One run of the loop: assembling a campaign from its settings, driving it, and the central Ray actor around it.

What to do next is decided in `orchestrator.campaign`; how one evaluation runs is in `workers`.
"""
