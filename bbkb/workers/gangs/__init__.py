"""Evaluations of several processes that Ray places together: ranks on several machines, or the
workers of a Ray Train trainer.

The core does not import this package. A campaign with `workers.machines` or
`ray_train` gives one of its crews to the Ray executor (`bbkb.workers.on_ray.crews`).
"""
