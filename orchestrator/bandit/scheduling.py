"""When a campaign asks a strategy and refreshes its model: the options of strategies that choose
with pending pulls."""

from dataclasses import dataclass

from orchestrator.bandit.checks import require
from orchestrator.bandit.options import DriftThreshold, MostPending, Options, RefreshGrowth, RefreshOverhead
from orchestrator.bandit.strategy import ModeOption, Waiting, WaitOption


@dataclass(frozen=True)
class RefreshOptions(Options):
    """When results reach the model. Campaigns read these options; `ask` and `tell` do not depend on
    them."""

    mode: ModeOption = "async"
    refresh_overhead: RefreshOverhead = 0.05
    refresh_growth: RefreshGrowth = 0.0


@dataclass(frozen=True)
class DriftOptions(RefreshOptions):
    """Pulls may be pending until the posterior could have drifted by more than C̃."""

    ratio_threshold: DriftThreshold = 4.0
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
    mode: ModeOption = "batch"

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "batch_size", "given with mode: batch", self.mode == "async" or not self.never_waits)

    @property
    def never_waits(self) -> bool:
        """See `Waits`. True if nothing bounds the pending pulls."""
        return self.batch_size is None
