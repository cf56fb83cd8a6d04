"""The campaigns of a folder or database, found and read in the background."""

import asyncio
import contextlib
import time

from bbkb.orchestrator.errors import reason_of
from bbkb.orchestrator.serve.feed import Feed
from bbkb.orchestrator.serve.sources import Sources

READ_SECONDS = 0.5  # between two reads of the logs
SOURCES_SECONDS = 5.0  # between two searches for new campaigns
START_SECONDS = 5.0  # the longest wait for the first search and the first reading
READ_TOGETHER = 8  # the number of campaigns that are read concurrently
_OPEN_POLL_SECONDS = 0.02  # between two checks whether an opened campaign has been read


class Campaigns:
    """All campaigns with their histories, kept up to date by two tasks."""

    def __init__(self, place: str) -> None:
        self.stop = asyncio.Event()  # set when the server stops
        self._sources = Sources(place)
        self._feeds: dict[str, Feed] = {}
        self._has_searched = asyncio.Event()
        self._has_read = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def feeds(self) -> list[Feed]:
        """All campaigns."""
        return list(self._feeds.values())

    async def open(self, name: str) -> Feed | None:
        """Return the campaign with this name; None if there is none.

        Its history is kept up to date from now on. Waits at most `START_SECONDS` for events.
        """
        feed = self._feeds.get(name)
        if feed is None:
            return None
        feed.want()
        deadline = time.monotonic() + START_SECONDS
        while feed.history is None and not feed.problem and time.monotonic() < deadline:
            await self.pause(_OPEN_POLL_SECONDS)
        return feed

    async def start(self) -> None:
        """Start the tasks and wait for the first reading, unless a run does not respond.

        So the first request, for example from a page that reconnects, finds the campaigns.
        """
        self._tasks = [asyncio.create_task(self._search_forever())]
        await self._wait(self._has_searched)
        self._tasks.append(asyncio.create_task(self._read_forever()))
        await self._wait(self._has_read)

    async def close(self) -> None:
        """End the tasks and close the connections."""
        self.stop.set()
        for task in self._tasks:
            await task
        for feed in self.feeds:
            feed.close()

    async def pause(self, seconds: float) -> None:
        """Wait, but only until the server stops."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.stop.wait(), seconds)

    async def _wait(self, event: asyncio.Event) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(event.wait(), START_SECONDS)

    async def _read_forever(self) -> None:
        """Keep all histories up to date.

        `READ_TOGETHER` campaigns are read concurrently, so that the waits for their files overlap.
        """
        while not self.stop.is_set():
            is_behind = False
            feeds = self.feeds
            for first in range(0, len(feeds), READ_TOGETHER):
                some = feeds[first : first + READ_TOGETHER]
                is_behind |= any(await asyncio.gather(*(asyncio.to_thread(feed.catch_up) for feed in some)))
                if self.stop.is_set():
                    return
            self._has_read.set()
            await self.pause(0.0 if is_behind else READ_SECONDS)

    async def _search_forever(self) -> None:
        while not self.stop.is_set():
            await self._search()
            self._has_searched.set()
            await self.pause(SOURCES_SECONDS)

    async def _search(self) -> None:
        """Add new campaigns."""
        try:
            sources = await asyncio.to_thread(self._sources.find)
        except Exception as error:
            for feed in self.feeds:
                feed.problem = reason_of(error)
            return
        for source in sources:
            present = self._feeds.get(source.name)
            # an unreadable folder may have become readable or may have been replaced
            if present is None or (not present.source.place and source != present.source):
                self._feeds[source.name] = Feed(source)
