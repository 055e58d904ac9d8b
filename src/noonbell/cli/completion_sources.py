"""Shell completion of the user's own names: schedules, quiet hours, monitors.

It answers quickly or not at all, and never with an error, because a shell cannot show one.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

import click
from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    from noonbell.cli.backend.backend_protocol import Backend

_SECONDS: Final = 2.0
_MOST: Final = 50


def schedule_names(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the names of schedules with this prefix; if there are none, ids with it."""

    async def ask(backend: Backend) -> list[CompletionItem]:
        wanted = {"name_contains": incomplete} if incomplete else {}
        page = await backend.schedules.list(limit=1_000, **wanted)
        named = [one for one in page.items if one.name.lower().startswith(incomplete.lower())]
        if not named:
            page = await backend.schedules.list(limit=1_000)
            ids = (one.schedule_id for one in page.items if one.schedule_id.startswith(incomplete))
            return [CompletionItem(one) for one in sorted(ids)][:_MOST]
        found = sorted(named, key=lambda one: one.name)[:_MOST]
        return [CompletionItem(_word(one.name, one.schedule_id), help=one.spec) for one in found]

    return _offered(ctx, ask)


def _word(name: str, schedule_id: str) -> str:
    """Return the name if it is one word in every shell, else the id."""
    return name if re.fullmatch(r"[\w.@%+/-]+", name) else schedule_id


def quiet_hours_ids(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    async def ask(backend: Backend) -> list[CompletionItem]:
        found = await backend.schedules.list_quiet_hours()
        return [CompletionItem(one.policy_id, help=one.name) for one in found if one.policy_id.startswith(incomplete)]

    return _offered(ctx, ask)


def _offered(ctx: click.Context, ask: Callable[[Backend], Awaitable[list[CompletionItem]]]) -> list[CompletionItem]:
    from datetime import UTC, datetime  # noqa: PLC0415 - completing a command needs none of it

    from noonbell.cli.connection_target import find_place  # noqa: PLC0415 - as above

    params: dict[str, Any] = ctx.params
    with contextlib.suppress(Exception):
        now = datetime.now(UTC)
        place = find_place(params.get("given_store"), params.get("given_server"), now, as_json=False)
        return place.ask(ask, within=_SECONDS, read_only=True)
    return []
