"""The coordinator: the central Ray actor that runs a session, the cluster it runs on, and the way
to talk to it.

The session itself is in `orchestrator.session`, which imports no Ray; evaluations on Ray are in
`workers.on_ray`.
"""
