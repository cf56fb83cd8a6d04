"""A training loop of your own: `Trial`, which reports and keeps checkpoints."""

from objectives.trial import Trial

__all__ = ["Trial"]
