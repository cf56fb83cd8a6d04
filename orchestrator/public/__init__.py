"""The modules `bbkb.strategy`, `bbkb.adapters` and `bbkb.integrations`: what users' code and other
libraries import.

A module here only names what other rooms define; `bbkb` finds the modules of this folder as its
own. Code belongs in `bandit` and `adapters`. The callbacks of `integrations` stand here themselves,
because nothing else uses them.
"""
