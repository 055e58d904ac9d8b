"""`Monitors`: heartbeat monitors of one store, as a library.

    monitors = Monitors(store, clock)
    backup = await monitors.create(name="backup", type="cron", spec="30 2 * * *", timezone="Europe/Kyiv",
                                   grace_seconds=1800)
    await monitors.ping(backup.token)          # what the job's call of its ping URL comes to

Everything lives in the store, and any number of processes may use it at the same moment. Time alone turns a monitor
`late` or `down` where a `Watch` runs; a ping settles what the time before it has done, watch or not.
"""

from __future__ import annotations

import codecs
import secrets
import uuid
from collections.abc import Callable, Sequence
from copy import copy
from typing import Final, Unpack

import msgspec

from noonbell.actions.secrets.secrets import Secrets
from noonbell.core.instants import MICROSECOND, moment, moment_or_none
from noonbell.core.records import DocumentWrite
from noonbell.errors import DocumentConflictError, MonitorInvalidError, MonitorNotFoundError, PingUnknownError
from noonbell.monitors import monitor_fields as checked
from noonbell.monitors.monitor_fields import MonitorChanges, MonitorFields
from noonbell.monitors.monitor_records import FlipRecord, Monitor, MonitorPage, OpenRun, Ping
from noonbell.monitors.monitor_state import (
    Change,
    PingFact,
    PingKind,
    Running,
    State,
    changed,
    deadlines,
    passed,
    paused,
    pinged,
    resumed,
)
from noonbell.monitors.ping_intake import reception_of
from noonbell.monitors.stored_monitors import (
    FLIP,
    LONGEST_WAIT,
    MONITOR,
    PING,
    TOKEN,
    Body,
    Edit,
    Editor,
    KeptPing,
    Stored,
    audit,
    read_flip,
    read_ping,
    slot_ids,
    stored,
    token_id,
    token_owner,
    token_write,
    with_change,
    with_ping,
)
from noonbell.ports import Clock, DocumentFilter, Ledger
from noonbell.store.documents import removals
from noonbell.timing.timing_protocol import SECOND

LONGEST_BODY: Final = 100_000  # bytes of a ping's body that are kept
PING_ACTOR: Final = "ping"
_LARGEST_PAGE: Final = 1_000


class Monitors:
    """The monitors of one store.

    With `secrets`, those of a monitor's team are hidden in what its pings say before that is stored. `mask` is another
    way to do so: it is given a team and a text. `on_due` is called when a change made something due soon: a `Watch` in
    the same process has it as `wake`.
    """

    def __init__(
        self,
        store: Ledger,
        clock: Clock,
        *,
        actor: str = "api",
        secrets: Secrets | None = None,
        mask: Callable[[str, str], str] | None = None,
        on_due: Callable[[], None] | None = None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._actor = actor
        self._secrets = secrets
        self._mask = mask
        self._on_due = on_due
        self._editor = Editor(store)
        self._reception = reception_of(store, clock.now())

    def acting(self, actor: str) -> Monitors:
        """Return the same monitors in the name of another actor, whom the audit log then names."""
        view = copy(self)
        vars(view).update(_actor=actor)
        return view

    # --- creating and reading -------------------------------------------------------------------------------------

    async def create(self, **fields: Unpack[MonitorFields]) -> Monitor:
        """A new monitor. Nothing is due until its first ping has come."""
        now = self._clock.now()
        written = checked.read_new(fields, now)
        chosen = checked.monitor_id(fields["monitor_id"]) if "monitor_id" in fields else uuid.uuid4().hex
        team = checked.text("team", fields.get("team", "default"))
        body = Body(
            written.name, written.tags, written.rhythm, State("new", now), secrets.token_urlsafe(24), uuid.uuid4().hex
        )
        write = DocumentWrite(MONITOR, chosen, team, msgspec.json.encode(body).decode(), expected=0)
        event = audit("created", chosen, now, self._actor, {"name": written.name, "rhythm": written.rhythm}, team=team)
        try:
            document, _ = await self._store.documents.write(
                [write, token_write(body.token, chosen, team)], now, [event]
            )
        except DocumentConflictError as error:
            raise MonitorInvalidError("monitor_id", chosen, "is taken; choose another") from error
        return record(Stored(document, body), written.understood)

    async def get(self, monitor_id: str) -> Monitor:
        return record(await self._find(monitor_id))

    async def list(self, *, team: str | None = None, cursor: str | None = None, limit: int = 100) -> MonitorPage:
        """A page of monitors by id, of one team or of all."""
        size = _page_size(limit)
        found = await self._store.documents.find(DocumentFilter(MONITOR, team=team), cursor or "", size + 1)
        more = found[size - 1].id if len(found) > size else None
        return MonitorPage([record(stored(document)) for document in found[:size]], more)

    async def pings(self, monitor_id: str, *, limit: int = 50) -> Sequence[Ping]:
        """The last pings, newest first."""
        body = (await self._find(monitor_id)).body
        ids = slot_ids(PING, body.key, body.pings)[-_page_size(limit) :]
        kept = [read_ping(document.body) for document in await self._store.documents.find(DocumentFilter(PING, ids))]
        return [_ping_record(ping) for ping in sorted(kept, key=lambda ping: -ping.number)]

    async def flips(self, monitor_id: str, *, limit: int = 200) -> Sequence[FlipRecord]:
        """The last changes of its status, newest first."""
        body = (await self._find(monitor_id)).body
        ids = slot_ids(FLIP, body.key, body.flips)[-_page_size(limit) :]
        kept = [read_flip(document.body) for document in await self._store.documents.find(DocumentFilter(FLIP, ids))]
        return [
            FlipRecord(
                one.number, moment(one.flip.at), one.flip.was, one.flip.status, one.flip.reason,
                one.flip.lasted_us * MICROSECOND,
            )
            for one in sorted(kept, key=lambda one: -one.number)
        ]  # fmt: skip

    async def _find(self, monitor_id: str) -> Stored:
        found = await self._editor.find([monitor_id])
        if not found:
            raise MonitorNotFoundError(monitor_id)
        return found[0]

    # --- changing -------------------------------------------------------------------------------------------------

    async def update(self, monitor_id: str, *, version: int | None = None, **fields: Unpack[MonitorChanges]) -> Monitor:
        """Change fields. Where its rhythm changes, what is due is counted from now.

        With `version`, only where it is of that version still: raises DocumentConflictError otherwise.
        """
        now = self._clock.now()
        understood: str | None = None

        def step(before: Stored) -> Edit | None:
            nonlocal understood
            if version not in (None, before.document.version):
                raise DocumentConflictError(MONITOR, monitor_id, before.document.version)
            body = before.body
            had = checked.Written(body.name, body.tags, body.rhythm, None)
            written = checked.read_changes(fields, had, now)
            understood = written.understood
            if written._replace(understood=None) == had:
                return None
            # what passed under the old rhythm is judged by it
            state, flips = passed(body.rhythm, body.state, now, self._reception.since(now))
            if written.rhythm != body.rhythm:
                state, more = changed(state, now)
                flips += more
            edit = with_change(before, Change(state, flips), noticed_at=now, actor=self._actor)
            after = msgspec.structs.replace(edit.body, name=written.name, tags=written.tags, rhythm=written.rhythm)
            detail = {"changed": sorted(fields), "name": written.name, "rhythm": written.rhythm}
            event = audit("updated", before.document.id, now, self._actor, detail, team=before.document.team)
            return Edit(after, edit.beside, (event, *edit.audits))

        _, after = await self._editor.edit(monitor_id, now, step)
        self._wake(after, now)
        return record(after, understood)

    async def pause(self, monitor_id: str) -> Monitor:
        """Conclude nothing until it is resumed; pings are noted all the same."""
        return await self._decide(monitor_id, paused)

    async def resume(self, monitor_id: str) -> Monitor:
        """Watch it again; the next ping is counted from now."""
        return await self._decide(monitor_id, resumed)

    async def _decide(self, monitor_id: str, decide: Callable[[State, int], Change]) -> Monitor:
        now = self._clock.now()

        def step(before: Stored) -> Edit | None:
            state, flips = passed(before.body.rhythm, before.body.state, now, self._reception.since(now))
            state, more = decide(state, now)
            if not more:
                return None
            return with_change(before, Change(state, flips + more), noticed_at=now, actor=self._actor)

        _, after = await self._editor.edit(monitor_id, now, step)
        self._wake(after, now)
        return record(after)

    async def renew_token(self, monitor_id: str) -> Monitor:
        """Give it another ping URL; the old one is unknown from then on."""
        now = self._clock.now()
        token = secrets.token_urlsafe(24)

        def step(before: Stored) -> Edit:
            body = msgspec.structs.replace(before.body, token=token)
            write = token_write(token, before.document.id, before.document.team)
            event = audit("token_renewed", before.document.id, now, self._actor, {}, team=before.document.team)
            return Edit(body, (write,), (event,))

        before, after = await self._editor.edit(monitor_id, now, step)
        # the monitor knows its token, so an old one that stays behind after a crash here opens nothing
        await self._store.documents.write(removed=removals(TOKEN, [token_id(before.body.token)]))
        return record(after)

    async def delete(self, monitor_id: str, *, version: int | None = None) -> None:
        """Delete it with its pings and flips; the audit stays. `version` is as for `update`."""
        found = await self._find(monitor_id)
        now, body = self._clock.now(), found.body
        facts = {"name": body.name, "status": body.state.status}
        event = audit("deleted", monitor_id, now, self._actor, facts, team=found.document.team)
        if not await self._store.documents.write(audits=[event], removed=removals(MONITOR, [monitor_id], version)):
            raise MonitorNotFoundError(monitor_id)
        # a crash before the rest leaves documents that are never found: their ids are made of its key
        await self._store.documents.write(removed=removals(TOKEN, [token_id(body.token)]))
        for kind, count in ((PING, body.pings + 1), (FLIP, body.flips + 1)):
            await self._store.documents.write(removed=removals(kind, slot_ids(kind, body.key, count)))

    # --- pings ----------------------------------------------------------------------------------------------------

    def elapsed(self) -> float:
        """Return the seconds on a monotonic clock, by which pings are limited."""
        return self._clock.elapsed()

    async def check_token(self, token: str) -> None:
        """Raise PingUnknownError if no monitor has the token. Cheap: it is called before a ping is read."""
        with self._reception.reading():
            await self._owner(token)

    async def ping(
        self,
        token: str,
        kind: PingKind | None = None,
        *,
        body: str | bytes = b"",
        exit_code: int | None = None,
        run: str = "",
    ) -> Monitor:
        """Take a ping: `success` unless a kind or an exit code says otherwise.

        `run` names a run, the same at its start and its end, where runs overlap or their pings may overtake each other.
        Of a body the first LONGEST_BODY bytes are kept. Raises PingUnknownError where no monitor has the token.
        """
        now = self._clock.now()
        meant, named = checked.ping_kind(kind, exit_code), checked.run_name(run)
        raw = body.encode("utf-8", "replace") if isinstance(body, str) else body
        with self._reception.reading():
            after = await self._take(token, PingFact(now, meant, named, exit_code), raw)
        self._reception.received(self._clock.now())  # it may have waited for the store
        self._wake(after, now)
        return record(after)

    async def _take(self, token: str, ping: PingFact, raw: bytes) -> Stored:
        monitor_id, team = await self._owner(token)
        if self._secrets is not None and (raw or ping.run):
            await self._secrets.resolve(team, ())  # afterwards its masker knows them all
        now, ping = ping.at, msgspec.structs.replace(ping, run=self._hidden(team, ping.run))
        text, cut = self._kept_text(team, raw)

        def step(before: Stored) -> Edit:
            if not secrets.compare_digest(before.body.token.encode(), token.encode()):
                raise PingUnknownError
            change = pinged(before.body.rhythm, before.body.state, ping, self._reception.since(now))
            edit = with_change(before, change, noticed_at=now, actor=PING_ACTOR)
            ran_for = _ran_for(before.body.state.running, ping)
            kept = KeptPing(before.body.pings, now, ping.kind, ping.exit_code, ping.run, ran_for, text, cut)
            return with_ping(before, edit, kept)

        try:
            _, after = await self._editor.edit(monitor_id, now, step)
        except MonitorNotFoundError:
            raise PingUnknownError from None
        return after

    async def _owner(self, token: str) -> tuple[str, str]:
        """The monitor that a token is for, and its team."""
        try:
            found = await self._store.documents.find(DocumentFilter(TOKEN, [token_id(token)]))
        except UnicodeEncodeError:
            raise PingUnknownError from None
        if not found:
            raise PingUnknownError
        return token_owner(found[0]), found[0].team

    def _hidden(self, team: str, text: str) -> str:
        if self._secrets is not None:
            text = self._secrets.masker(team).text(text)
        return text if self._mask is None else self._mask(team, text)

    def _kept_text(self, team: str, raw: bytes) -> tuple[str, bool]:
        """The text of a body that is kept, and whether there was more. Bytes that are no UTF-8 become U+FFFD.

        It is masked before it is cut: of a secret that was cut in two no part would be found.
        """
        text = self._hidden(team, raw.decode("utf-8", "replace"))
        encoded = text.encode()
        if len(encoded) <= LONGEST_BODY:
            return text, len(raw) > LONGEST_BODY
        # what the cut leaves of a letter of several bytes is left out
        return codecs.getincrementaldecoder("utf-8")().decode(encoded[:LONGEST_BODY]), True

    def _wake(self, after: Stored, now: int) -> None:
        wake_at = after.body.wake_at
        if self._on_due is not None and wake_at is not None and wake_at <= now + LONGEST_WAIT:
            self._on_due()


def _ran_for(running: tuple[Running, ...], ping: PingFact) -> int | None:
    if ping.kind not in ("success", "fail"):
        return None
    return next((max(0, ping.at - one.since) for one in running if one.run == ping.run), None)


def _page_size(limit: object) -> int:
    if not isinstance(limit, int) or isinstance(limit, bool) or not 1 <= limit <= _LARGEST_PAGE:
        raise MonitorInvalidError("limit", limit, f"must be a whole number from 1 to {_LARGEST_PAGE}")
    return limit


def record(one: Stored, understood: str | None = None) -> Monitor:
    """A monitor as others see it."""
    document, body = one.document, one.body
    rhythm, state = body.rhythm, body.state
    awaited = state.status in ("up", "late") and not state.running and state.counted_from is not None
    due_at = rhythm.due_after(state.counted_from) if awaited and state.counted_from is not None else None
    return Monitor(
        monitor_id=document.id,
        name=body.name,
        team=document.team,
        type=rhythm.type,
        spec=rhythm.spec,
        timezone=rhythm.timezone,
        dst=rhythm.dst,
        grace_seconds=rhythm.grace_us / SECOND,
        max_run_seconds=None if rhythm.max_run_us is None else rhythm.max_run_us / SECOND,
        tags=body.tags,
        status=state.status,
        since=moment(state.since),
        reason=state.reason,
        running=tuple(OpenRun(run.run, moment(run.since)) for run in state.running),
        due_at=moment_or_none(due_at),
        down_at=moment_or_none(deadlines(rhythm, state).down_at),
        last_ping_at=moment_or_none(state.last_ping_at),
        last_kind=state.last_kind,
        pings=body.pings,
        flips=body.flips,
        token=body.token,
        ping_path=f"/ping/{body.token}",
        created_at=moment(document.created_at),
        updated_at=moment(document.updated_at),
        version=document.version,
        understood=understood,
    )


def _ping_record(ping: KeptPing) -> Ping:
    ran_for = None if ping.ran_for_us is None else ping.ran_for_us * MICROSECOND
    return Ping(ping.number, moment(ping.at), ping.kind, ping.exit_code, ping.run, ran_for, ping.body, ping.cut)
