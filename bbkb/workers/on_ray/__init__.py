"""All code on the workers' side that imports Ray: the executor, its tasks and its worker actors.

No object reference, actor handle or Ray exception leaves this package.
"""
