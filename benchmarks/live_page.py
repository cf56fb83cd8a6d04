"""The times of the live page's server with a very long campaign: fold, first page, one update,
pictures, a trial.

    python -m benchmarks.live_page --evaluations 1000000 --store sqlite:////tmp/long.sqlite

The log is synthetic: batches of 50, each evaluated and learned. It is written once, and found by
its name later.
"""

import argparse
import functools
import gzip
import json
import random
import statistics
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from orchestrator.campaign.events import (
    BatchChosen,
    CampaignCreated,
    Event,
    ModelRefreshed,
    PickedTrial,
    SessionOpened,
    TrialsDispatched,
    TrialSucceeded,
)
from orchestrator.errors import RunError
from orchestrator.history.fold import History
from orchestrator.serve import views
from orchestrator.serve.feed import Feed
from orchestrator.serve.sources import Source
from orchestrator.store.event_store import EventStore, Writer
from orchestrator.store.migrations import rules_of_version_2

T = TypeVar("T")

BATCH = 50
START = 1.75e9
SETTINGS = {
    "name": "long",
    "objective": {"name": "made_up"},
    "space": {"x": {"low": 0.0, "high": 1.0}, "y": {"low": 0.0, "high": 1.0}},
    "strategy": {"name": "uniform"},
    "workers": {"count": BATCH},
}


def settings_of(evaluations: int) -> dict[str, object]:
    """The campaign file; its budget is larger than the number of evaluations in the log."""
    return {**SETTINGS, "budget": {"evaluations": 2 * evaluations}}


def campaign_created(evaluations: int) -> CampaignCreated:
    """The first event."""
    settings = settings_of(evaluations)
    return CampaignCreated(
        time=START,
        name="long",
        seed=0,
        arms=1000,
        candidates_digest="",
        objective="",
        optimum=None,
        settings=settings,
        rules=rules_of_version_2(settings, 0),
    )


def session_opened(evaluations: int) -> SessionOpened:
    """The only session."""
    settings = settings_of(evaluations)
    rules = rules_of_version_2(settings, BATCH)
    return SessionOpened(time=START, epoch=1, executor="ray", slots=BATCH, settings=settings, rules=rules)


def batch(number: int, draws: random.Random) -> list[Event]:
    """The events of one batch, from its choice to its refit."""
    time_, first = START + number, number * BATCH
    trials = range(first, first + BATCH)
    values = [(draws.random(), draws.random()) for _ in trials]
    picks = tuple(
        PickedTrial(trial=trial, arm=trial % 1000, parameters={"x": x, "y": y}, mean=0.5, width=1.0, variance=0.1)
        for trial, (x, y) in zip(trials, values, strict=True)
    )
    succeeded = [
        TrialSucceeded(
            time=time_,
            trial=trial,
            attempt=1,
            value=x * (1.0 - y) + draws.gauss(0.0, 0.1),
            started=time_ - 1.0,
            finished=time_,
            worker=f"node{trial % BATCH}:1",
            metrics={},
        )
        for trial, (x, y) in zip(trials, values, strict=True)
    ]
    return [
        BatchChosen(time=time_ - 1.0, round=number, picks=picks, reason="budget", seconds=0.01, limit=BATCH),
        TrialsDispatched(time=time_ - 1.0, attempts=tuple((trial, 1) for trial in trials)),
        *succeeded,
        ModelRefreshed(time=time_, round=number + 1, trials=tuple(trials), dictionary_size=10, record={}, seconds=0.01),
    ]


def log_at(url: str, name: str, evaluations: int) -> Writer:
    """The log in the store `url`; it is written when it does not exist."""
    store = EventStore(url)
    if store.has(name):
        return store.claim(name, "the benchmark")
    store.create(name, [campaign_created(evaluations)])
    writer = store.claim(name, "the benchmark")
    writer.append([session_opened(evaluations)])
    draws, events = random.Random(0), list[Event]()
    for number in range(evaluations // BATCH):
        events += batch(number, draws)
        if len(events) > 20_000:
            writer.append(events)
            events = []
    writer.append(events)
    return writer


def measure_time(what: str, make: Callable[[], T], size: Callable[[T], int] | None = None) -> T:
    """The result of `make`, after printing its duration (and its size in bytes)."""
    began = time.perf_counter()
    result = make()
    seconds = time.perf_counter() - began
    print(f"{what:32} {seconds * 1e3:12,.1f} ms" + ("" if size is None else f" {size(result):12,} bytes"), flush=True)
    return result


def updates(feed: Feed, writer: Writer, evaluations: int, count: int = 20) -> Iterator[tuple[float, int]]:
    """The server's seconds and the bytes of `count` updates, each after one batch of results."""
    draws = random.Random(1)
    for number in range(count):
        writer.append(batch(evaluations // BATCH + number, draws))
        cursor, began = feed.position, time.process_time()
        feed.catch_up()
        text = json.dumps(feed.while_locked(functools.partial(views.update, feed, cursor, START)), default=str)
        yield time.process_time() - began, len(text)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--evaluations", type=int, default=1_000_000)
    parser.add_argument("--store", default="sqlite:////tmp/bbkb-long.sqlite")
    arguments = parser.parse_args()
    name = f"long-{arguments.evaluations}"
    writer = measure_time("write the log, or open it", lambda: log_at(arguments.store, name, arguments.evaluations))
    feed = Feed(Source(name, arguments.store))

    def fold() -> None:
        while feed.catch_up():
            pass

    measure_time("fold", fold)
    if feed.history is None:
        raise RunError(feed.problem)
    history: History = feed.history
    done = len(history.succeeded)
    print(f"{done:,} results, {feed.position:,} events")

    def to_json(value: object) -> bytes:
        return json.dumps(value, default=str).encode()

    measure_time("overview", lambda: to_json(views.overview([feed])), len)
    measure_time("first page", lambda: to_json(views.update(feed, None, START)), len)
    writings = list(updates(feed, writer, done))
    seconds, sizes = [entry_seconds for entry_seconds, _ in writings], [size for _, size in writings]
    print(
        f"{'update, 50 results, median':32} {statistics.median(seconds) * 1e3:12,.1f} ms {max(sizes):12,} bytes at most"
    )
    copied = measure_time("copy for the pictures", history.copy)
    pictures = measure_time("pictures", lambda: to_json(views.pictures(copied)), len)
    measure_time("pictures, compressed", lambda: gzip.compress(pictures, compresslevel=5), len)
    measure_time("newest trials", lambda: to_json(views.trials(history, "trial", True, "", 0)), len)
    measure_time("best trials", lambda: to_json(views.trials(history, "value", True, "", 0)), len)
    measure_time("one trial", lambda: to_json(views.trial(history, done // 2, None)), len)


if __name__ == "__main__":
    main()
