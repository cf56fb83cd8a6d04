"""Callbacks for training libraries, one module for each: `lightning`, `keras`, `xgboost`,
`lightgbm`, `huggingface`.

    from bbkb.integrations.xgboost import TrialCallback

A callback belongs here when it reports at the library's own hook, stops by the library's own means
and keeps checkpoints in the trial's folder. What they share is in `trial`. Importing this package
imports no library. What runs trials or learns from them belongs elsewhere.
"""
