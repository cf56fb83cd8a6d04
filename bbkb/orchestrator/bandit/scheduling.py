"""The options of strategies that choose with pending pulls: when results reach the model."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bbkb.orchestrator.bandit.checks import require
from bbkb.orchestrator.bandit.options import DriftThreshold, MostPending, Options, RefreshGrowth
from bbkb.orchestrator.bandit.strategy import Choose, Decision, ModeOption, Pick, Wait, Waiting, WaitOption


@dataclass(frozen=True)
class RefreshOptions(Options):
    """When results reach the model. `campaign.policy` reads these options; the functions of a strategy do not."""

    mode: ModeOption = "batch"
    refresh_growth: RefreshGrowth = 0.0


@dataclass(frozen=True)
class DriftOptions(RefreshOptions):
    """Pulls may be pending until the posterior could have drifted by more than C̃."""

    ratio_threshold: DriftThreshold = 2.0
    wait: WaitOption = Waiting.DRIFT_BUDGET

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "wait", "drift_budget with mode: batch", self.mode == "async" or not self.never_waits)

    @property
    def never_waits(self) -> bool:
        """See `Waits`."""
        return self.wait is Waiting.NEVER


@dataclass(frozen=True)
class PendingOptions(RefreshOptions):
    """At most `batch_size` pulls may be pending, for methods without a rule for their batches."""

    batch_size: MostPending = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "batch_size", "given with mode: batch", self.mode == "async" or not self.never_waits)

    @property
    def never_waits(self) -> bool:
        """See `Waits`. True if nothing bounds the pending pulls."""
        return self.batch_size is None

    def choose(
        self,
        pending: Sequence[int],
        limit: int,
        picks_left: Callable[[Sequence[int], int], int],
        pick: Callable[[Sequence[int]], Pick],
    ) -> Decision:
        """Return picks one by one, as many as `limit` and `batch_size` allow.

        Args:
            pending: arms without a reward.
            limit: the largest number of picks, >= 1.
            picks_left: returns the number of picks that the arms allow, given `pending` and a limit.
            pick: returns the next pick, given the pending arms and the picks before it.
        """
        free = limit if self.batch_size is None else self.batch_size - len(pending)
        if free <= 0:
            return Wait("a whole batch is pending")
        pulls = list(pending)
        picks: list[Pick] = []
        for _ in range(picks_left(pending, min(limit, free))):
            picks.append(pick(pulls))
            pulls.append(picks[-1].arm)
        return Choose(tuple(picks), "limit" if self.batch_size is None or limit < free else "batch size")
