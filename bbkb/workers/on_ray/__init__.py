"""All code on the workers' side that imports Ray: the executor, its tasks, its worker actors and its
gangs.

No object reference, actor handle or Ray exception leaves this package.
"""
