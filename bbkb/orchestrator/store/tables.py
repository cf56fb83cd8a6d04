"""The tables of a store and the statements of an append. `store.migrations` has their history."""

import sqlalchemy as sa

METADATA = sa.MetaData()

SCHEMA = sa.Table("bbkb_schema", METADATA, sa.Column("version", sa.Integer, nullable=False))

CAMPAIGNS = sa.Table(
    "bbkb_campaigns",
    METADATA,
    sa.Column("campaign", sa.String(200), primary_key=True),
    sa.Column("epoch", sa.Integer, nullable=False),
    sa.Column("holder", sa.String(200), nullable=False),
    sa.Column("since", sa.Float, nullable=False),
    sa.Column("length", sa.Integer, nullable=False),
    sa.Column("head", sa.BigInteger, nullable=True),  # checksum of the last event; null in logs of older versions
)

EVENTS = sa.Table(
    "bbkb_events",
    METADATA,
    sa.Column("campaign", sa.String(200), primary_key=True),
    sa.Column("position", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("epoch", sa.Integer, nullable=False),
    sa.Column("kind", sa.String(40), nullable=False),
    sa.Column("body", sa.Text, nullable=False),
    sa.Column("checksum", sa.BigInteger, nullable=True),  # null in rows of older versions
    sa.Column("version", sa.SmallInteger, nullable=True),  # of the body's format; null means 1
)

HOLDERS = sa.Table(
    "bbkb_holders",
    METADATA,
    sa.Column("campaign", sa.String(200), primary_key=True),
    sa.Column("epoch", sa.Integer, nullable=False),
    sa.Column("holder", sa.Text, nullable=False),  # for display; empty if the campaign is free
    sa.Column("identity", sa.Text, nullable=False),  # for programs: JSON of `lease.Identity`
    sa.Column("since", sa.Float, nullable=False),  # times on the holder's clock, for display
    sa.Column("last_beat", sa.Float, nullable=False),
    sa.Column("beats", sa.BigInteger, nullable=False),
    sa.Column("stop", sa.String(10), nullable=False),  # the requested stop: "", "drain" or "now"
    sa.Column("settings", sa.Text, nullable=True),  # the campaign file of this claim, as JSON
)

# Notes of users on a campaign, which are not part of the log; `number` starts at 0.
NOTES = sa.Table(
    "bbkb_notes",
    METADATA,
    sa.Column("campaign", sa.String(200), primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("time", sa.Float, nullable=False),
    sa.Column("trial", sa.Integer, nullable=True),  # null for a note on the campaign
    sa.Column("text", sa.Text, nullable=False),
    sa.Column("tags", sa.Text, nullable=False),  # a JSON list
)

# The state after some events of a log, so that a reader need not fold the whole log
SNAPSHOTS = sa.Table(
    "bbkb_snapshots",
    METADATA,
    sa.Column("campaign", sa.String(200), primary_key=True),
    sa.Column("position", sa.Integer, nullable=False),  # the number of these events
    sa.Column("head", sa.BigInteger, nullable=False),  # the checksum of the last of these events
    sa.Column(
        "version", sa.String(20), nullable=False
    ),  # checksum of the program that can read the body, and of the contents
    sa.Column("body", sa.Text, nullable=False),
)

# The statements of an append, built once. `of` is the campaign, `under` the epoch of its holder
_MINE = (CAMPAIGNS.c.campaign == sa.bindparam("of")) & (CAMPAIGNS.c.epoch == sa.bindparam("under"))
LOCK = CAMPAIGNS.update().where(_MINE).values(epoch=CAMPAIGNS.c.epoch)
END = sa.select(CAMPAIGNS.c.length, CAMPAIGNS.c.head).where(_MINE)
INSERT = EVENTS.insert()
ADVANCE = CAMPAIGNS.update().where(_MINE).values(length=sa.bindparam("to"), head=sa.bindparam("last"))
