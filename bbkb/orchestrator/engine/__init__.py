"""A search without workers: the strategy, its model, the candidates, and the campaign's state.

A session (`bbkb.orchestrator.session`) and an `Optimizer` (`bbkb.orchestrator.ask_tell`) each own an `Engine`.
"""
