"""The checkpoints of a population: those saved at pauses, and those that new trials copied."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from orchestrator.campaign.immutable import no_items, replace, with_items


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

    def needed_by(self, unfinished: Iterable[int]) -> Callable[[int, int], bool]:
        """Return a function that says whether a trial can still need a saved checkpoint.

        A checkpoint is given by its trial and step. The newest one of each member is needed, and
        the origins of the `unfinished` trials, which may have to copy them again.
        """
        origins = (self.copied[trial] for trial in unfinished if trial in self.copied)
        needed = {(origin.trial, origin.step) for origin in origins}
        replaced = {copied.replaces for copied in self.copied.values()}

        def is_needed(trial: int, step: int) -> bool:
            is_newest = trial not in self.saved or step >= self.saved[trial][0]
            return (trial, step) in needed or (trial not in replaced and is_newest)

        return is_needed
