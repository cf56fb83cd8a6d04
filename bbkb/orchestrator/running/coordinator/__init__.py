"""The coordinator: the Ray actor that runs a session, its cluster, and the connection to it.

The session itself is in `bbkb.orchestrator.session`, which does not import Ray; evaluations on Ray are
in `bbkb.workers.on_ray`.
"""
