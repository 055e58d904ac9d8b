"""`Channels`: where notices can go.

    channels = Channels(store, clock, secrets=secrets)
    ops = await channels.create(name="ops", kind="slack", config={"url": "https://hooks.slack.com/services/…"})
    await channels.test(ops.channel_id)         # sends one, and returns what the other side said

What is secret in a config is sealed, and shows as `***`. Everything goes out through egress; a kind whose connections
cannot be led through it (apprise) is refused unless the operator has turned it on.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import Any, Final, NamedTuple

import msgspec

from noonbell.actions.egress import Egress, HttpClient
from noonbell.actions.secrets.masking import NOTHING, Masker
from noonbell.actions.secrets.repository import missing_key
from noonbell.actions.secrets.secret_records import DEFAULT_TEAM
from noonbell.actions.secrets.secrets import Secrets
from noonbell.core.instants import moment
from noonbell.core.records import AuditEvent, Document, DocumentWrite
from noonbell.errors import (
    ChannelInUseError,
    ChannelInvalidError,
    ChannelNotFoundError,
    DeliveryError,
    DocumentConflictError,
)
from noonbell.notify import sealing
from noonbell.notify.kinds import KINDS, check_config, kind_named
from noonbell.notify.notice_records import (
    CHANNEL,
    DEFAULT_PER_MINUTE,
    RULE,
    STATE,
    Channel,
    ChannelBody,
    ChannelPage,
    channel_body,
    rule_body,
    state_id,
)
from noonbell.notify.notice_text import RenderedNotice, render_test
from noonbell.notify.sending import SendContext
from noonbell.ports import Clock, DocumentFilter, Ledger
from noonbell.store.documents import removals

NEW: Final = "new"  # not a valid id: a URL has it in place of the id of a new record
ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", re.ASCII)
_LARGEST_PAGE: Final = 1_000
_PAGE: Final = 500
_LANES: Final = 10  # as many states are read at once: most stores have a lane or two
_MOST_PER_MINUTE: Final = 10_000
_encode = msgspec.json.Encoder().encode


class OpenChannel(NamedTuple):
    """A channel with its secrets opened: sending to it takes nothing from the store any more."""

    channel_id: str
    kind: str
    config: dict[str, Any]
    signing_keys: Sequence[str]
    masker: Masker


class ChannelSender:
    """Sends rendered notices to channels: opens the secrets of each, and has one client for all."""

    def __init__(self, clock: Clock, *, egress: Egress | None, secrets: Secrets | None, apprise: bool = False) -> None:
        self.secrets = secrets
        self._clock = clock
        self._egress = Egress() if egress is None else egress
        self._apprise = apprise
        self._client: HttpClient | None = None

    async def send(self, document: Document, rendered: RenderedNotice) -> str:
        """Send a notice to a channel; return what the other side said, without secrets."""
        return await self.send_open(await self.open(document), rendered)

    async def open(self, document: Document) -> OpenChannel:
        """Read all that sending to a channel takes."""
        body = channel_body(document)
        self.require_allowed(body.kind)
        config = await sealing.opened(self.secrets, document.team, body)
        masker = NOTHING if self.secrets is None else self.secrets.masker(document.team)
        keys = await self._signing_keys(document) if config.get("sign") else ()
        return OpenChannel(document.id, body.kind, config, keys, masker)

    async def send_open(self, channel: OpenChannel, rendered: RenderedNotice) -> str:
        """Send a notice to a channel that was opened before."""
        masker = channel.masker
        context = SendContext(
            self._egress, self._http, channel.signing_keys, self._clock.now, channel.channel_id, masker
        )
        try:
            return masker.text(await KINDS[channel.kind].send(context, channel.config, rendered))
        except DeliveryError as error:
            raise DeliveryError(masker.text(error.target), masker.text(error.reason)) from None

    def require_allowed(self, kind: str) -> None:
        if kind == "apprise" and not self._apprise:
            reason = "is off: its connections cannot be checked; the operator may turn it on with apprise=True"
            raise ChannelInvalidError("kind", kind, reason)

    def _http(self) -> HttpClient:
        if self._client is None:
            self._client = self._egress.client()
        return self._client

    async def _signing_keys(self, document: Document) -> Sequence[str]:
        if self.secrets is None:
            raise missing_key()
        return [key.key for key in await self.secrets.signing_keys(_signer(document.id), document.team)]

    async def close(self) -> None:
        """Close what is open; the next notice opens it again."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()


class Channels:
    """The channels of one store. `on_change` is called after each change: an engine in this process looks again."""

    def __init__(
        self,
        store: Ledger,
        clock: Clock,
        *,
        secrets: Secrets | None = None,
        egress: Egress | None = None,
        actor: str = "api",
        apprise: bool = False,
        on_change: Callable[[], None] | None = None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._secrets = secrets
        self._egress = egress
        self._actor = actor
        self._apprise = apprise
        self._on_change = on_change

    def acting(self, actor: str) -> Channels:
        """Return the same channels in the name of another actor, whom the audit log then names."""
        view = copy(self)
        secrets = None if self._secrets is None else self._secrets.acting(actor)
        vars(view).update(_actor=actor, _secrets=secrets)
        return view

    # --- reading --------------------------------------------------------------------------------------------------

    async def get(self, channel_id: str) -> Channel:
        return channel_record(await self._find(channel_id))

    async def list(self, *, team: str | None = None, cursor: str | None = None, limit: int = 100) -> ChannelPage:
        """A page of channels by id, of one team or of all."""
        if type(limit) is not int or not 1 <= limit <= _LARGEST_PAGE:
            raise ChannelInvalidError("limit", limit, f"must be a whole number from 1 to {_LARGEST_PAGE}")
        found = await self._store.documents.find(DocumentFilter(CHANNEL, team=team), cursor or "", limit + 1)
        more = found[limit - 1].id if len(found) > limit else None
        return ChannelPage([channel_record(document) for document in found[:limit]], more)

    async def _find(self, channel_id: str) -> Document:
        found = await self._store.documents.find(DocumentFilter(CHANNEL, [channel_id]))
        if not found:
            raise ChannelNotFoundError(channel_id)
        return found[0]

    # --- changing -------------------------------------------------------------------------------------------------

    async def create(
        self,
        *,
        name: str,
        kind: str,
        config: Mapping[str, Any],
        team: str = DEFAULT_TEAM,
        channel_id: str | None = None,
        most_per_minute: int | None = DEFAULT_PER_MINUTE,
        enabled: bool = True,
    ) -> Channel:
        """Create a channel. It sends at most `most_per_minute` notices; what is beyond goes into a summary."""
        kind_named(kind)
        self._sender().require_allowed(kind)
        chosen = uuid.uuid4().hex[:12] if channel_id is None else _id(channel_id)
        if await self._store.documents.find(DocumentFilter(CHANNEL, [chosen])):
            raise ChannelInvalidError("channel_id", chosen, "is taken; choose another")
        checked = check_config(kind, config)
        said, rate = _name(name), _rate(most_per_minute)
        sealed = await sealing.seal(self._secrets, team, kind, checked)
        body = ChannelBody(said, kind, sealed.config, enabled, rate, sealed.names)
        try:
            document = await self._put(chosen, team, body, expected=0, event="created")
        except DocumentConflictError as error:
            await sealing.drop(self._secrets, team, sealed.names)
            raise ChannelInvalidError("channel_id", chosen, "is taken; choose another") from error
        return channel_record(document)

    async def update(
        self,
        channel_id: str,
        *,
        name: str | None = None,
        config: Mapping[str, Any] | None = None,
        most_per_minute: int | msgspec.UnsetType | None = msgspec.UNSET,
        enabled: bool | None = None,
        version: int | None = None,
    ) -> Channel:
        """Change fields. A `config` replaces the whole one, with its secrets.

        Raises DocumentConflictError if it was changed concurrently, or is not of `version`.
        """
        before = await self._find(channel_id)
        if version is not None and before.version != version:
            raise DocumentConflictError(CHANNEL, channel_id, before.version)
        body = channel_body(before)
        changes: dict[str, Any] = {}
        if name is not None:
            changes["name"] = _name(name)
        if not isinstance(most_per_minute, msgspec.UnsetType):
            changes["most_per_minute"] = _rate(most_per_minute)
        if enabled is not None:
            changes["enabled"] = enabled
        fresh: tuple[str, ...] = ()
        if config is not None:
            checked = check_config(body.kind, config)
            sealed = await sealing.seal(self._secrets, before.team, body.kind, checked)
            fresh = sealed.names
            changes |= {"config": sealed.config, "sealed": fresh}
        after = msgspec.structs.replace(body, **changes)
        try:
            document = await self._put(channel_id, before.team, after, expected=before.version, event="updated")
        except BaseException:
            await sealing.drop(self._secrets, before.team, fresh)
            raise
        if config is not None:
            # a crash before this leaves unreferenced secrets behind
            await sealing.drop(self._secrets, before.team, body.sealed)
        return channel_record(document)

    async def delete(self, channel_id: str, *, version: int | None = None) -> None:
        """Delete a channel that no rule names. What is on its way to it becomes a dead letter.

        What it has held back is forgotten.

        Raises DocumentConflictError where it is not of `version`.
        """
        document = await self._find(channel_id)
        if naming := await self._rules_naming(channel_id):
            raise ChannelInUseError(channel_id, naming)
        now, body = self._clock.now(), channel_body(document)
        audit = AuditEvent(now, "channel.deleted", channel_id, self._actor, _facts(body), document.team)
        if not await self._store.documents.write(audits=[audit], removed=removals(CHANNEL, [channel_id], version)):
            raise ChannelNotFoundError(channel_id)
        await self._drop_states(channel_id)
        await sealing.drop(self._secrets, document.team, body.sealed)
        if self._secrets is not None and self._secrets.usable:
            await self._secrets.drop_signing_keys(_signer(channel_id), document.team)
        self._changed()

    async def _rules_naming(self, channel_id: str) -> Sequence[str]:
        naming, after = [], ""
        while page := await self._store.documents.find(DocumentFilter(RULE), after, _PAGE):
            naming += [document.id for document in page if channel_id in rule_body(document).channels]
            after = page[-1].id
        return naming

    async def _drop_states(self, channel_id: str) -> None:
        """Forget what was counted in each lane; what a turn that is under way writes after this, no channel reads."""
        prefix = state_id(channel_id, "")
        while page := await self._store.documents.find(DocumentFilter(STATE), prefix, _LANES):
            ids = [document.id for document in page if document.id.startswith(prefix)]
            if not ids:
                break
            await self._store.documents.write(removed=removals(STATE, ids))

    async def _put(self, channel_id: str, team: str, body: ChannelBody, *, expected: int, event: str) -> Document:
        now = self._clock.now()
        audit = AuditEvent(now, f"channel.{event}", channel_id, self._actor, _facts(body), team)
        write = DocumentWrite(CHANNEL, channel_id, team, _encode(body).decode(), expected)
        (document,) = await self._store.documents.write([write], now, [audit])
        self._changed()
        return document

    def _changed(self) -> None:
        if self._on_change is not None:
            self._on_change()

    # --- trying it out --------------------------------------------------------------------------------------------

    async def test(self, channel_id: str) -> str:
        """Send a test notice now, past all limits; returns what the other side said.

        Raises:
            DeliveryError: it did not arrive; the message says why.
        """
        document = await self._find(channel_id)
        sender = self._sender()
        rendered = render_test(channel_id, channel_body(document).name, self._clock.now())
        try:
            return await sender.send(document, rendered)
        finally:
            await sender.close()

    async def signing_keys(self, channel_id: str) -> Sequence[str]:
        """Return the keys that sign the requests to a webhook, newest first, for use by its receiver."""
        document = await self._find(channel_id)
        if channel_body(document).kind != "webhook":
            raise ChannelInvalidError("kind", channel_body(document).kind, "is not signed; a webhook is")
        if self._secrets is None:
            raise missing_key()
        return [key.key for key in await self._secrets.signing_keys(_signer(channel_id), document.team)]

    def _sender(self) -> ChannelSender:
        return ChannelSender(self._clock, egress=self._egress, secrets=self._secrets, apprise=self._apprise)


def channel_record(document: Document) -> Channel:
    body = channel_body(document)
    return Channel(
        channel_id=document.id,
        name=body.name,
        team=document.team,
        kind=body.kind,
        config=sealing.shown(body),
        enabled=body.enabled,
        most_per_minute=body.most_per_minute,
        created_at=moment(document.created_at),
        updated_at=moment(document.updated_at),
        version=document.version,
    )


def _signer(channel_id: str) -> str:
    return f"channel:{channel_id}"


def _facts(body: ChannelBody) -> str:
    """Return the facts for the audit log: everything but the secrets."""
    facts = {"name": body.name, "kind": body.kind, "config": sealing.shown(body), "enabled": body.enabled}
    return _encode(facts).decode()


def _id(value: object) -> str:
    if not isinstance(value, str) or not ID.fullmatch(value):
        right = "must be 1 to 64 letters, digits, dots, hyphens and underscores, beginning with a letter or a digit"
        raise ChannelInvalidError("channel_id", value, right)
    if value == NEW:
        raise ChannelInvalidError("channel_id", value, "would mean something else in an address; choose another")
    return value


def _name(value: object) -> str:
    if not isinstance(value, str) or not value.strip() or len(value) > 200 or not value.isprintable():
        raise ChannelInvalidError("name", value, "must be a text of 1 to 200 characters in one line, not blank")
    return value


def _rate(value: object) -> int | None:
    if value is not None and (type(value) is not int or not 1 <= value <= _MOST_PER_MINUTE):
        right = f"must be a whole number from 1 to {_MOST_PER_MINUTE}, or None for no limit"
        raise ChannelInvalidError("most_per_minute", value, right)
    return value
