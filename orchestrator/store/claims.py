"""The holders of campaigns in a database: claims, heartbeats and stop requests."""

import time
from typing import cast

import sqlalchemy as sa

from orchestrator.store.campaign_database import CampaignDatabase
from orchestrator.store.store import Holding, Stop
from orchestrator.store.tables import HOLDERS


class Claims(CampaignDatabase):
    """Reads and updates the holders of campaigns."""

    def holding(self, campaign: str) -> Holding:
        """Return the current holder of the campaign. Raises RunError if the campaign does not exist."""
        with self._reading() as connection:
            row = self._row(connection, campaign)
            if not sa.inspect(connection).has_table(HOLDERS.name):
                return Holding(row.epoch)  # a database of an older version
            query = sa.select(*(HOLDERS.c[name] for name in Holding.__slots__)).where(HOLDERS.c.campaign == campaign)
            holder = connection.execute(query).one_or_none()
        return Holding(row.epoch) if holder is None else Holding(*holder)

    def claimed_settings(self, campaign: str) -> str:
        """Return the campaign file of the newest claim as JSON; empty if the claim has none."""
        with self._reading() as connection:
            query = sa.select(HOLDERS.c.settings).where(HOLDERS.c.campaign == campaign)
            return connection.execute(query).scalar_one_or_none() or ""

    def ask_to_stop(self, campaign: str, epoch: int, stop: Stop) -> bool:
        """Store a stop request for the holder of this epoch, who reads it with the next heartbeat.

        Return False if the epoch no longer has a holder.
        """
        mine = (HOLDERS.c.campaign == campaign) & (HOLDERS.c.epoch == epoch) & (HOLDERS.c.holder != "")
        with self._writing() as connection:
            return connection.execute(HOLDERS.update().where(mine).values(stop=stop)).rowcount == 1

    def beat(self, campaign: str, epoch: int) -> Stop:
        """Record a heartbeat of the holder of this epoch, and return the pending stop request.

        Raises FencedError if another process has taken over.
        """
        mine = (HOLDERS.c.campaign == campaign) & (HOLDERS.c.epoch == epoch)
        beaten = HOLDERS.update().where(mine).values(beats=HOLDERS.c.beats + 1, last_beat=time.time())
        with self._writing() as connection:
            if connection.execute(beaten).rowcount != 1:
                raise self._fenced_error(connection, campaign, epoch)
            return cast(Stop, connection.execute(sa.select(HOLDERS.c.stop).where(mine)).scalar_one())

    def release(self, campaign: str, epoch: int) -> None:
        """Release the claim of this epoch. Do nothing if another process has taken over."""
        mine = (HOLDERS.c.campaign == campaign) & (HOLDERS.c.epoch == epoch)
        with self._writing() as connection:
            connection.execute(
                HOLDERS.update().where(mine).values(holder="", identity="", stop="", last_beat=time.time())
            )
