"""For your own training loops: `Trial`, which reports intermediate values and writes
checkpoints."""

from bbkb.objectives.external import Trial

__all__ = ["Trial"]
