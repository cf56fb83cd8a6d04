"""Other libraries in a campaign: experiment trackers, Optuna studies, and Optuna's samplers as a
strategy.

The core never imports this package: the table `STRATEGIES` names the class of the strategy as a
string, and `bbkb export` imports the rest. Code that another library calls belongs in `adapters`.
"""
