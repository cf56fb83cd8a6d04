"""The checkpoints of a population: those saved at pauses, and those that new trials copied."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from bbkb.orchestrator.campaign.immutable import no_items, replace, with_items


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """The checkpoint from which a new trial of a population continues."""

    trial: int  # the parent, whose checkpoint is copied
    step: int  # the step at which the parent was paused
    replaces: int  # the trial that ends in favor of the new one

    def __str__(self) -> str:
        origin = f"continues from trial {self.trial} at step {self.step}"
        return f"{origin}, in place of trial {self.replaces}"


@dataclass(frozen=True)
class Population:
    """The saved checkpoints and the ancestry of a population; empty with other strategies."""

    # new trial → its origin, kept forever
    copied: Mapping[int, Copied] = field(default_factory=no_items)
    # trial → step and reward of the newest pause that the strategy has learned
    saved: Mapping[int, tuple[int, float]] = field(default_factory=no_items)

    def after_copy(self, trial: int, copied: Copied) -> "Population":
        """Return a copy with the origin of a new trial."""
        return replace(self, copied=with_items(self.copied, {trial: copied}))

    def after_pauses(self, saved: Mapping[int, tuple[int, float]]) -> "Population":
        """Return a copy with these checkpoints in place of older ones of the same trials."""
        return replace(self, saved=with_items(self.saved, saved))

    def first_needed(self, unfinished: Iterable[int]) -> Mapping[int, float]:
        """Return the step of the first checkpoint of each trial that can still be needed.

        This is its newest one, unless the trial was replaced. An `unfinished` trial may have to copy
        its origin again until it has paused itself.
        """
        needed: dict[int, float] = {trial: step for trial, (step, _) in self.saved.items()}
        needed |= dict.fromkeys((copied.replaces for copied in self.copied.values()), math.inf)
        for trial in self.copied.keys() & set(unfinished) - self.saved.keys():
            origin = self.copied[trial]
            needed[origin.trial] = min(needed[origin.trial], origin.step)
        return needed
