"""Which arm next, when, and what is remembered. `Optimizer` is the ask-and-tell face for people without a campaign."""

from orchestrator.optimizer import Optimizer

__all__ = ["Optimizer"]
