"""Callbacks for training libraries, one module for each: `lightning`, `keras`, `xgboost`,
`lightgbm`, `huggingface`.

    from bbkb.integrations.xgboost import TrialCallback

A callback reports from the library's own hook, stops the training by the library's own means, and
saves checkpoints in the trial's folder. Their common code is in `trial`. Importing this package
imports no library. Code that runs trials or learns from them belongs elsewhere.
"""
