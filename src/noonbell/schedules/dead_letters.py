"""Dead letters: messages that could not be delivered, looked at, sent again or forgotten."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from noonbell.ports import Clock
from noonbell.schedules import arguments, changes
from noonbell.schedules.engine_notifier import EngineNotifier
from noonbell.schedules.schedule_records import Page, Undelivered, page_size, undelivered

_BLOCK: Final = 500


class DeadLetters(EngineNotifier):
    """The part of `Schedules` that handles undelivered messages."""

    _clock: Clock
    _actor: str

    async def dead_letters(
        self,
        schedule_id: str | None = None,
        *,
        team: str | None = None,
        cursor: str | None = None,
        limit: int = 100,
    ) -> Page[Undelivered]:
        """A page of the messages that could not be delivered, oldest first; those of a deleted schedule included."""
        sid = None if schedule_id is None else (await self._history(schedule_id)).sid
        size = page_size(limit)
        found = await self._store.outbox.dead_letters(sid, arguments.after_cursor(cursor), size + 1, self._only(team))
        items = [undelivered(letter) for letter in found[:size]]
        return Page(items, str(found[size - 1].number) if len(found) > size else None)

    async def revive_dead_letters(self, numbers: Sequence[int]) -> int:
        """Put them back at the end of their streams, to be delivered at once; returns how many there were."""
        now = self._clock.now()
        audit = changes.dead_letters_event(now, self._actor, "message.revived", self._team)
        revived = await self._store.outbox.resolve(await self._own_letters(numbers), audit, redeliver_at=now)
        self._actions.wake()
        return revived

    async def drop_dead_letters(self, numbers: Sequence[int]) -> int:
        """Forget them; returns how many there were."""
        audit = changes.dead_letters_event(self._clock.now(), self._actor, "message.dropped", self._team)
        return await self._store.outbox.resolve(await self._own_letters(numbers), audit)

    async def _own_letters(self, numbers: Sequence[int]) -> Sequence[int]:
        """Return the numbers that this view may see; a dead letter stays with its team, so this also holds later."""
        wanted = set(arguments.letter_numbers(numbers))
        if self._team is None or not wanted:
            return sorted(wanted)
        own: list[int] = []
        after = min(wanted) - 1
        while page := await self._store.outbox.dead_letters(None, after, _BLOCK, self._team):
            own += [letter.number for letter in page if letter.number in wanted]
            after = page[-1].number
            if after >= max(wanted):
                break
        return own
