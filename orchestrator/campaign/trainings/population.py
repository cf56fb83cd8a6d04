"""The checkpoints of a population: those saved at pauses, and those that new trials copied."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from orchestrator.campaign.immutable import replace


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
    copied: Mapping[int, Copied] = field(default_factory=lambda: MappingProxyType({}))
    # trial → step and reward of the newest pause that the strategy has learned
    saved: Mapping[int, tuple[int, float]] = field(default_factory=lambda: MappingProxyType({}))

    def with_saved(self, saved: Mapping[int, tuple[int, float]]) -> "Population":
        """Return a copy with these checkpoints in place of older ones of the same trials."""
        return replace(self, saved=MappingProxyType({**self.saved, **saved})) if saved else self

    def without(self, trials: Iterable[int]) -> "Population":
        """Return a copy in which no further trial may copy the checkpoints of `trials`."""
        removed = self.saved.keys() & set(trials)
        if not removed:
            return self
        kept = {trial: at for trial, at in self.saved.items() if trial not in removed}
        return replace(self, saved=MappingProxyType(kept))

    def superfluous(
        self, files: Iterable[tuple[int, int]], unfinished: Iterable[int]
    ) -> list[tuple[int, int]]:  # fmt: skip
        """Return the saved checkpoints among `files` (trial, step) that no trial needs any more.

        Args:
            files: all existing checkpoints.
            unfinished: running or queued trials, which may have to copy their origin again.
        """
        origins = (self.copied[trial] for trial in unfinished if trial in self.copied)
        needed = {(origin.trial, origin.step) for origin in origins}
        replaced = {copied.replaces for copied in self.copied.values()}
        return [
            (trial, step)
            for trial, step in files
            if (trial, step) not in needed
            and (trial in replaced or (trial in self.saved and step < self.saved[trial][0]))
        ]  # fmt: skip
