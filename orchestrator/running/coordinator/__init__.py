"""The coordinator: the Ray actor that runs a session, its cluster, and the connection to it.

The session itself is in `orchestrator.session`, which does not import Ray; evaluations on Ray are
in `workers.on_ray`.
"""
