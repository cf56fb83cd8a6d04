"""A campaign's problem: what a session searches, and how its trials run."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bbkb.objectives.objective import Candidates
from bbkb.objectives.space import SearchSpace
from bbkb.orchestrator.bandit.goals import SINGLE, Goals
from bbkb.orchestrator.bandit.strategy import AnyStrategy
from bbkb.orchestrator.campaign.events import Event
from bbkb.orchestrator.campaign.transitions import damage_error
from bbkb.orchestrator.engine.engine import Engine
from bbkb.orchestrator.engine.pool import Pool
from bbkb.orchestrator.errors import BbkbError, CampaignError, place_of, trace_of
from bbkb.orchestrator.session.resources import Resources


@dataclass(frozen=True)
class Problem:
    """A campaign's candidates, strategy and seed."""

    name: str  # the campaign's name
    seed: int  # the seed of all random numbers
    candidates: Candidates  # the initial candidates
    strategy: AnyStrategy
    space: SearchSpace | None = None  # the source of new candidates; None if their set is fixed
    limit: int = 0  # the largest number of candidates if there is a `space`
    trial_folders: Path | None = None  # the parent of the trials' own folders; None if they have none
    outputs: Path | None = None  # the folder for the output of attempts; None if it is not saved
    is_deterministic: bool = False  # whether no arm is evaluated twice
    goals: Goals = SINGLE  # the numbers of objectives and constraints
    # the resources of each trial if parameters determine them
    resources: Resources | None = None
    threads: int = 1  # the threads of BLAS for the strategy's computations

    def engine(self) -> Engine:
        """Return the engine before the first event. Raises CampaignError if the strategy fails."""
        pool = Pool(self.candidates, self.space, self.limit)
        with strategy_errors("starting the strategy"):
            return Engine(self.strategy, self.seed, pool, self.goals, self.is_deterministic)


@contextmanager
def strategy_errors(activity: str) -> Iterator[None]:
    """Raise CampaignError, with the traceback, for an error that the strategy raises in `activity`."""
    try:
        yield
    except BbkbError:
        raise
    except Exception as error:
        reason = f"{type(error).__name__} in {activity}: {error}{place_of(error)}"
        raise CampaignError(f"{reason}\n{trace_of(error)}") from error


def replay(problem: Problem, events: Iterable[Event]) -> Engine:
    """Return the engine after the events of a log. Raises StoreError if one cannot follow the events
    before it."""
    engine = problem.engine()
    for event in events:
        try:
            engine.restore(event)
        except (BbkbError, MemoryError):  # caused by recorded settings, or by this machine
            raise
        except Exception as error:
            raise damage_error(event, error) from error
    return engine
