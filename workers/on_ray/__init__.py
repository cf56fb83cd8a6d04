"""Everything that imports Ray on the side of the workers: the executor, its tasks and its worker
actors.

No object reference, actor handle or Ray exception leaves this package and `workers.gangs`.
"""
