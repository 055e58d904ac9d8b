"""`Access`: teams, API keys, users and sessions of one store.

    access = Access(store, clock)
    record, key = await access.create_key("default", ["write"], name="deployments")
    caller = await access.authenticate(key)          # Caller, or None

A key is `nbk_<id>_<secret>`: the id finds its document, and the SHA-256 of the secret is compared in constant time.
What was found is remembered for CACHED_SECONDS, so that a busy client does not read the store each time: a key that is
revoked by another process works that much longer, one that is revoked here does not.

A request that only reads writes nothing: the last use of a key is kept here, at most once a minute, and `write_uses`
writes it. Where a process ends without that, its last uses are lost.

`acting` gives a view with another actor, whom the audit then names.
"""

from __future__ import annotations

import hmac
import re
import secrets
from collections.abc import Sequence
from datetime import datetime
from typing import Final

import msgspec

from noonbell.access import access_records as checked
from noonbell.access.access_records import (
    API_KEY,
    DEFAULT_TEAM,
    TEAM,
    ApiKey,
    Caller,
    KeyBody,
    Scope,
    Team,
    TeamBody,
    implied,
)
from noonbell.access.acting import digest
from noonbell.access.members import Members
from noonbell.core.instants import instant, moment, moment_or_none
from noonbell.core.records import Document, DocumentWrite
from noonbell.errors import AccessInvalidError, AccessNotFoundError, DocumentConflictError, NaiveDatetimeError
from noonbell.ports import DocumentFilter
from noonbell.store.documents import removals

CACHED_SECONDS: Final = 5.0
_USE_WRITTEN: Final = 60_000_000
_MOST_CACHED: Final = 10_000
_PAGE: Final = 1_000
_KEY: Final = re.compile(r"nbk_([a-z0-9]{12})_([A-Za-z0-9_-]{43})", re.ASCII)
_ALPHABET: Final = "abcdefghijklmnopqrstuvwxyz0123456789"
_encode = msgspec.json.Encoder().encode


class Access(Members):
    """The access control of one store."""

    # --- teams ----------------------------------------------------------------------------------------------------

    async def create_team(self, name: str, title: str | None = None) -> Team:
        chosen = checked.check_name("team", name)
        body = TeamBody(chosen if title is None else checked.check_title("title", title))
        write = DocumentWrite(TEAM, chosen, chosen, _encode(body).decode(), expected=0)
        audit = self._audit_event("team.created", chosen, {"title": body.title}, chosen)
        (document,) = await self._store.documents.write([write], self._now(), [audit])
        return _team(document)

    async def ensure_default_team(self) -> None:
        """The team of whatever was given none is always there."""
        if not await self._store.documents.find(DocumentFilter(TEAM, [DEFAULT_TEAM])):
            try:
                await self.create_team(DEFAULT_TEAM)
            except DocumentConflictError:
                return  # another process was quicker

    async def list_teams(self, *, after: str = "", limit: int = 100) -> Sequence[Team]:
        """List the teams by name, past `after`."""
        return [_team(document) for document in await self._store.documents.find(DocumentFilter(TEAM), after, limit)]

    # --- API keys -------------------------------------------------------------------------------------------------

    async def create_key(
        self,
        team: str,
        scopes: Sequence[str],
        *,
        name: str,
        expires_at: datetime | None = None,
        made_with: str | None = None,
    ) -> tuple[ApiKey, str]:
        """A new key and its record. The key is not stored: this is the only time that it can be shown.

        `made_with` is the id of the key that it is made with: it does not outlive that one.
        """
        title, allowed = checked.check_title("name", name), checked.check_scopes(scopes)
        if expires_at is not None and expires_at.tzinfo is None:
            raise NaiveDatetimeError(expires_at)
        if expires_at is not None and instant(expires_at) <= self._now():
            raise AccessInvalidError("expires_at", expires_at.isoformat(), "must be in the future")
        maker = None if made_with is None else (await self.get_key(made_with)).expires_at
        if maker is not None and (expires_at is None or maker < expires_at):
            expires_at = maker
        chosen = await self._require_team(team)
        key_id = "".join(secrets.choice(_ALPHABET) for _ in range(12))
        secret = secrets.token_urlsafe(32)
        body = KeyBody(title, allowed, digest(secret), self._actor, None if expires_at is None else instant(expires_at))
        write = DocumentWrite(API_KEY, key_id, chosen, _encode(body).decode(), expected=0)
        audit = self._audit_event("api_key.created", key_id, {"name": title, "scopes": allowed}, chosen)
        (document,) = await self._store.documents.write([write], self._now(), [audit])
        if made_with is not None and not await self._store.documents.find(DocumentFilter(API_KEY, [made_with])):
            await self._drop_key(document, made_with=made_with)  # the creating key was revoked in the meantime
            raise AccessNotFoundError("API key", made_with)
        return _key(document, body), f"nbk_{key_id}_{secret}"

    async def list_keys(self, team: str | None, *, after: str = "", limit: int = 100) -> Sequence[ApiKey]:
        """The keys of a team, or of all, by id and past `after`."""
        found = await self._store.documents.find(DocumentFilter(API_KEY, team=team), after, limit)
        return [self._record(document) for document in found]

    async def get_key(self, key_id: str, *, team: str | None = None) -> ApiKey:
        return self._record(await self._find_key(key_id, team))

    def _record(self, document: Document) -> ApiKey:
        """A key with its last use, written or not."""
        body = _key_body(document.body)
        used_at = self._shared.uses.get(document.id)
        return _key(document, body if used_at is None else msgspec.structs.replace(body, last_used_at=used_at))

    async def revoke_key(self, key_id: str, *, team: str | None = None) -> list[str]:
        """Revoke a key and every key that was made with it, directly or by one of them; return their ids, it first.

        With `team`, only where it is that team's. What it made for other teams goes with it.
        """
        await self._drop_key(await self._find_key(key_id, team))
        revoked = [key_id]
        # it makes no more from now on, so that a second look at all keys finds those that came during the first
        while found := await self._made_by(set(revoked)):
            for document in found:
                await self._drop_key(document, made_with=key_id)
                revoked.append(document.id)
        return revoked

    async def _drop_key(self, document: Document, **facts: str) -> None:
        name = _key_body(document.body).name
        audit = self._audit_event("api_key.revoked", document.id, {"name": name, **facts}, document.team)
        await self._store.documents.write(audits=[audit], removed=removals(API_KEY, [document.id]))
        self._shared.known.pop(document.id, None)
        self._shared.uses.pop(document.id, None)

    async def _made_by(self, makers: set[str]) -> list[Document]:
        """The keys that were made with one of these."""
        actors = {_actor_of_key(maker) for maker in makers}
        found: list[Document] = []
        after = ""
        while page := await self._store.documents.find(DocumentFilter(API_KEY), after, _PAGE):
            found += [document for document in page if _key_body(document.body).created_by in actors]
            after = page[-1].id
        return found

    async def _find_key(self, key_id: str, team: str | None) -> Document:
        found = await self._store.documents.find(DocumentFilter(API_KEY, [key_id]))
        if not found or team not in (None, found[0].team):
            raise AccessNotFoundError("API key", key_id)
        return found[0]

    async def authenticate(self, key: str) -> Caller | None:
        """Return the caller that this key identifies, or None if the key is unknown or has expired."""
        parts = _KEY.fullmatch(key)
        if parts is None:
            return None
        found = await self._known_key(parts[1])
        if found is None:
            return None
        document, body = found
        if not hmac.compare_digest(digest(parts[2]), body.digest):
            return None
        now = self._now()
        if body.expires_at is not None and body.expires_at <= now:
            return None
        if _is_due(self._shared.uses.get(document.id, body.last_used_at), now):
            self._shared.uses[document.id] = now
        return Caller(_actor_of_key(document.id), document.team, implied(body.scopes), key_id=document.id)

    async def _known_key(self, key_id: str) -> tuple[Document, KeyBody] | None:
        known, elapsed = self._shared.known, self._shared.clock.elapsed()
        cached = known.get(key_id)
        if cached is not None and elapsed - cached[0] < CACHED_SECONDS:
            return cached[1], cached[2]
        known.pop(key_id, None)
        found = await self._store.documents.find(DocumentFilter(API_KEY, [key_id]))
        if not found:
            return None
        body = _key_body(found[0].body)
        self._remember(elapsed, found[0], body)
        return found[0], body

    def _remember(self, elapsed: float, document: Document, body: KeyBody) -> None:
        if len(self._shared.known) >= _MOST_CACHED:
            self._shared.known.clear()
        self._shared.known[document.id] = elapsed, document, body

    async def write_uses(self) -> None:
        """Write the last uses of keys that are not written yet; where that fails they are kept for the next time."""
        uses, self._shared.uses = self._shared.uses, {}
        ids = list(uses)
        try:
            for begin in range(0, len(ids), _PAGE):
                found = await self._store.documents.find(DocumentFilter(API_KEY, ids[begin : begin + _PAGE]))
                await self._write_uses([_used(document, uses[document.id]) for document in found])
                for document in found:
                    self._remember_use(document.id, uses[document.id])
        except BaseException:
            self._shared.uses = uses | self._shared.uses
            raise

    def _remember_use(self, key_id: str, at: int) -> None:
        """Record the use in the cached entry, so that the minute is counted from the key's last use."""
        if (cached := self._shared.known.get(key_id)) is not None:
            self._shared.known[key_id] = *cached[:2], msgspec.structs.replace(cached[2], last_used_at=at)

    async def _write_uses(self, found: Sequence[DocumentWrite | None]) -> None:
        writes = [write for write in found if write is not None]
        if not writes:
            return
        try:
            await self._store.documents.write(writes, self._now())
        except DocumentConflictError:  # another process has written one of them, or revoked its key
            for write in writes if len(writes) > 1 else ():
                await self._write_uses([write])


def _used(document: Document, at: int) -> DocumentWrite | None:
    """The key with its last use; None where a later one, or one of the same minute, is written already."""
    body = _key_body(document.body)
    if not _is_due(body.last_used_at, at):
        return None
    text = _encode(msgspec.structs.replace(body, last_used_at=at)).decode()
    # only where it is still as it was read: a key that was revoked since then must not come back
    return DocumentWrite(API_KEY, document.id, document.team, text, expected=document.version)


def _is_due(last_used_at: int | None, now: int) -> bool:
    """Return whether a use is to be written, given the last one that was written."""
    return last_used_at is None or now - last_used_at >= _USE_WRITTEN


_key_body = msgspec.json.Decoder(KeyBody).decode


def _actor_of_key(key_id: str) -> str:
    """Return the actor of a key; the keys that it makes keep it as `created_by`."""
    return f"key:{key_id}"


def _team(document: Document) -> Team:
    body = msgspec.json.decode(document.body, type=TeamBody)
    return Team(document.id, body.title, moment(document.created_at))


def _key(document: Document, body: KeyBody) -> ApiKey:
    scopes: tuple[Scope, ...] = body.scopes
    return ApiKey(
        document.id, document.team, body.name, scopes, moment(document.created_at), body.created_by,
        moment_or_none(body.expires_at), moment_or_none(body.last_used_at),
    )  # fmt: skip
