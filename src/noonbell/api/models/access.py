"""Teams, API keys and instances, in requests and responses."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field

from noonbell.access import Scope
from noonbell.api.models.base import RequestBody, ResponseBody, ShortName, left_out
from noonbell.api.paging import Instant

TeamName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_.-]{0,62}$", examples=["billing"])]


class TeamRequest(RequestBody):
    """A new team."""

    name: TeamName
    title: ShortName = left_out(description="The display name; default: the name.")


class TeamResponse(ResponseBody):
    name: str
    title: str
    created_at: datetime


class KeyRequest(RequestBody):
    """A new API key."""

    name: ShortName = Field(description="What it is for.", examples=["deployments"])
    scopes: list[Scope] = Field(
        min_length=1, max_length=3, description="write includes read, and admin both.", examples=[["write"]]
    )
    expires_at: Instant = left_out(description="Without it the key does not expire.", examples=["2030-01-01T00:00:00Z"])
    team: TeamName = left_out(description="Another team than the caller's: only for keys that manage teams.")


class KeyResponse(ResponseBody):
    key_id: str = Field(examples=["k3v9x2m7q1az"])
    team: str
    name: str
    scopes: list[Scope]
    created_at: datetime
    created_by: str
    expires_at: datetime | None = None
    last_used_at: datetime | None = Field(default=None, description="To the minute.")


class KeyMade(KeyResponse):
    """A new key."""

    key: str = Field(description="Returned only here; it is not stored.", examples=["nbk_k3v9x2m7q1az_…"])


class KeysRevoked(ResponseBody):
    """The key, and the keys that were created with it, directly or indirectly."""

    revoked: list[str] = Field(examples=[["k3v9x2m7q1az"]])


class CallerResponse(ResponseBody):
    """The caller that a key authenticates."""

    actor: str
    team: str
    scopes: list[Scope]
    manages_teams: bool


class InstanceResponse(ResponseBody):
    """A live engine. Any number of engines may share a lane."""

    lane: str
    state: Literal["starting", "up", "stopping"]
    here: bool = Field(description="Whether it runs in the process that answers.")
    up_since: datetime = Field(description="Since when the lane is up without a gap, by whichever of its engines.")
    joined_at: datetime = Field(description="When this engine joined the lane.")
    seen_seconds_ago: float = Field(description="The age of its latest heartbeat.")
    last_poll_seconds_ago: float | None = Field(
        description="How long ago it completed a poll, as recorded every few seconds; null before the first."
    )
    version: str = Field(description="The version of Noonbell that it runs.", examples=["0.1.0"])
    zone_data: str = Field(description="The version of its time zone data.", examples=["2026a"])
    load: dict[str, int | float | None] = Field(
        description="Runs in flight, and how late runs began in the last minute.",
        examples=[{"running": 3, "most": 10000, "started_per_minute": 42, "late_p99_seconds": 0.05}],
    )
    instance: str | None = Field(default=None, description="Its name; only for keys that manage teams.")
    host: str | None = Field(default=None, description="Where it runs; as `instance`.")
    pid: int | None = Field(default=None, description="Its process; as `instance`.")
