"""Sealed secrets as documents of a store.

The document of a secret has the id "<team>/<name>", that of a schedule's signing keys the schedule's id. Its body is
the sealed record without what the document says itself. The document counts its writes and the secret its values, so a
new wrapping raises the one version and not the other.

A body that cannot be read counts as a record that does not open: it is listed, can be replaced or removed, and hides
no other. Every change but a new wrapping is recorded in the audit log, by name and version.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from noonbell.actions.secrets.secret_records import SealedKind, SealedSecret
from noonbell.core.records import AuditEvent, Document, DocumentWrite
from noonbell.errors import DocumentConflictError
from noonbell.ports import DocumentFilter, Ledger
from noonbell.store.documents import removals

_PAGE: Final = 500
_encode = msgspec.json.Encoder().encode


class _Body(msgspec.Struct, frozen=True, gc=False):
    version: int
    key_version: int
    wrapped_key: bytes
    nonce: bytes
    sealed: bytes
    updated_at: int


_decode = msgspec.json.Decoder(_Body).decode


class SecretDocuments:
    """A SecretStore over documents of one kind. `clock` gives microseconds since 1970."""

    def __init__(self, store: Ledger, clock: Callable[[], int], actor: str, kind: SealedKind = "secret") -> None:
        self._store = store
        self._clock = clock
        self._actor = actor
        self._kind: SealedKind = kind

    async def put_secret(self, sealed: SealedSecret) -> bool:
        found = await self._store.documents.find(DocumentFilter(self._kind, [self._id(sealed.team, sealed.name)]))
        stored = 0 if not found else self._read(found[0]).version
        if sealed.version != stored + 1:
            return False
        event = "created" if not found else "replaced"
        try:
            await self._store.documents.write(
                [self._write(sealed, found[0].version if found else 0)],
                self._clock(),
                [self._audit_event(event, sealed.team, sealed.name, version=sealed.version)],
            )
        except DocumentConflictError:
            return False
        return True

    async def get_secrets(self, team: str, names: Sequence[str]) -> list[SealedSecret]:
        found = await self._store.documents.find(DocumentFilter(self._kind, [self._id(team, name) for name in names]))
        return [self._read(document) for document in found if document.team == team]

    async def list_secrets(self, team: str) -> list[SealedSecret]:
        listed: list[SealedSecret] = []
        after = ""
        while page := await self._store.documents.find(DocumentFilter(self._kind, team=team), after, _PAGE):
            listed += map(self._read, page)
            after = page[-1].id
        return listed

    async def teams(self) -> set[str]:
        """The teams that have any."""
        found: set[str] = set()
        after = ""
        while page := await self._store.documents.find(DocumentFilter(self._kind), after, _PAGE):
            found.update(document.team for document in page)
            after = page[-1].id
        return found

    async def drop_secret(self, team: str, name: str) -> bool:
        if not await self.get_secrets(team, [name]):
            return False  # there may be one of another team: the id of signing keys does not name theirs
        audit = self._audit_event("deleted", team, name)
        removed = removals(self._kind, [self._id(team, name)])
        return bool(await self._store.documents.write(audits=[audit], removed=removed))

    async def secrets_under_other_keys(
        self, key_version: int, limit: int, after: tuple[str, str] | None = None
    ) -> list[SealedSecret]:
        found: list[SealedSecret] = []
        last = "" if after is None else self._id(*after)
        while len(found) < limit and (
            page := await self._store.documents.find(DocumentFilter(self._kind), last, _PAGE)
        ):
            found += (sealed for sealed in map(self._read, page) if sealed.key_version != key_version)
            last = page[-1].id
        return found[:limit]

    async def rewrap_secrets(self, pairs: Sequence[tuple[SealedSecret, SealedSecret]]) -> int:
        ids = [self._id(old.team, old.name) for old, _ in pairs]
        stored = {
            document.id: document for document in await self._store.documents.find(DocumentFilter(self._kind, ids))
        }
        writes = [
            self._write(new, stored[one].version)
            for one, (old, new) in zip(ids, pairs, strict=True)
            if one in stored and self._read(stored[one]) == old
        ]
        try:
            return len(await self._store.documents.write(writes, self._clock()))
        except DocumentConflictError:
            # another writer was quicker with one of them: the others go one by one
            return sum([await self._rewrapped(write) for write in writes])

    async def _rewrapped(self, write: DocumentWrite) -> int:
        try:
            return len(await self._store.documents.write([write], self._clock()))
        except DocumentConflictError:
            return 0

    def _id(self, team: str, name: str) -> str:
        # the name of a secret holds no slash, so that no two secrets share an id
        return f"{team}/{name}" if self._kind == "secret" else name

    def _write(self, sealed: SealedSecret, expected: int) -> DocumentWrite:
        body = _Body(
            sealed.version, sealed.key_version, sealed.wrapped_key, sealed.nonce, sealed.body, sealed.updated_at
        )
        return DocumentWrite(
            self._kind, self._id(sealed.team, sealed.name), sealed.team, _encode(body).decode(), expected
        )

    def _read(self, document: Document) -> SealedSecret:
        try:
            body = _decode(document.body)
        except msgspec.MsgspecError:
            # no master key has the version 0, so this never opens
            body = _Body(document.version, 0, b"", b"", b"", document.updated_at)
        return SealedSecret(
            team=document.team,
            name=document.id.removeprefix(f"{document.team}/") if self._kind == "secret" else document.id,
            version=body.version,
            key_version=body.key_version,
            wrapped_key=body.wrapped_key,
            nonce=body.nonce,
            body=body.sealed,
            created_at=document.created_at,
            updated_at=body.updated_at,
            kind=self._kind,
        )

    def _audit_event(self, event: str, team: str, name: str, **facts: int) -> AuditEvent:
        detail = _encode({"team": team, "name": name, **facts}).decode()
        return AuditEvent(self._clock(), f"{self._kind}.{event}", self._id(team, name), self._actor, detail, team)
