"""The log as tables of trials, attempts and refits, and their export to files, to Optuna, TensorBoard and MLflow.

No module here makes a decision or writes to the log.
"""
