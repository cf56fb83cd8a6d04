"""The public modules `bbkb.strategy`, `bbkb.adapters`, `bbkb.integrations` and `bbkb.types`.

`bbkb` uses this folder as its package path. A module here only re-exports names that other packages
define; their code belongs in `bandit` and `adapters`. Only the callbacks of `integrations` are
defined here, because no other code uses them.
"""
