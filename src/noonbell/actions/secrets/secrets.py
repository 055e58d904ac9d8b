"""`Secrets`: the secrets of a store in use.

    secrets = Secrets(store, read_keys(Path("master.keys")), clock, actor="ann")
    await secrets.put("default", "TOKEN", "…")

People put values in and see names, versions and times; no verb for people gives a value back. `resolve` is for code
that fills in a request, `masker` and `mask` for code that writes something down. Without master keys nothing is stored
or read, and there is nothing to mask.

What this process changes counts at once, what another changes within a second; a name that is not known is looked up
again each time. A value that is known here is masked in the log lines of this package from then on (see `logs`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from copy import copy
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import msgspec

from noonbell.actions.secrets import logs
from noonbell.actions.secrets.keys import KeyRing
from noonbell.actions.secrets.known import KnownSecrets
from noonbell.actions.secrets.masking import NOTHING, Masker
from noonbell.actions.secrets.references import loosely_named
from noonbell.actions.secrets.repository import Rotation, SecretRepository, missing_key
from noonbell.actions.secrets.secret_records import DEFAULT_TEAM, NAME, SEALED_KINDS, SecretFacts
from noonbell.actions.secrets.signing import SigningKeys
from noonbell.actions.secrets.stored_secrets import SecretDocuments
from noonbell.actions.signatures import SigningKey
from noonbell.core.records import AuditEvent
from noonbell.errors import MasterKeyError, SecretUnreadableError
from noonbell.ports import Clock, Ledger

if TYPE_CHECKING:
    from noonbell.actions.secrets.vault import Vault

FRESH_SECONDS: Final = 1.0
OVERLAP: Final = timedelta(days=1)
_encode = msgspec.json.Encoder().encode


class Secrets:
    """The secrets and signing keys of one store. `keys` is None where the operator has made no master key."""

    def __init__(self, store: Ledger, keys: KeyRing | None, clock: Clock, actor: str = "api") -> None:
        self._store = store
        self._clock = clock
        self._actor = actor
        self._documents = SecretDocuments(store, clock.now, actor)
        self._vault = None if keys is None else _vault(keys)
        self._book = SecretRepository(self._documents, self._vault, clock.now)
        self._known: KnownSecrets | None = None
        self._signing: SigningKeys | None = None
        if self._vault is not None:
            self._known = KnownSecrets(self._documents, self._vault, clock.elapsed)
            self._signing = SigningKeys(store, self._vault, clock, actor)
            logs.guard(self._known)

    def __repr__(self) -> str:
        return f"Secrets({self._vault!r})"

    @property
    def usable(self) -> bool:
        """Return whether a master key is configured."""
        return self._vault is not None

    def acting(self, actor: str) -> Secrets:
        """Return the same secrets in the name of another actor, whom the audit log then names."""
        view = copy(self)
        documents = SecretDocuments(self._store, self._clock.now, actor)
        vars(view).update(
            _actor=actor,
            _documents=documents,
            _book=SecretRepository(documents, self._vault, self._clock.now),
            _signing=None if self._signing is None else self._signing.acting(actor),
        )
        return view

    # --- for people -----------------------------------------------------------------------------------------------

    async def put(self, team: str, name: str, value: str) -> SecretFacts:
        """Store a secret, or a new value of one that is there.

        Raises:
            MasterKeyMissingError: no master key is configured; the message says how to make one.
            SecretInvalidError: the name or the value cannot be stored.
        """
        facts = await self._book.put(team, name, value)
        await self._changed(team)
        return facts

    async def list(self, team: str) -> Sequence[SecretFacts]:
        """List what may be shown of a team's secrets, by name."""
        return await self._book.listed(team)

    async def delete(self, team: str, name: str) -> bool:
        """Remove a secret. False: there is none."""
        gone = await self._book.remove(team, name)
        if gone:
            await self._changed(team)
        return gone

    async def rotate(self, *, page: int = 100, progress: Callable[[int], None] | None = None) -> Rotation:
        """Wrap again, under the newest master key, everything that is sealed under older ones.

        It may run beside readers and writers, be stopped anywhere and started again. `progress` gets how many have
        been wrapped again so far. What does not open is reported and left alone.
        """
        total = Rotation(0, [])
        for kind in SEALED_KINDS:
            documents = SecretDocuments(self._store, self._clock.now, self._actor, kind)
            book = SecretRepository(documents, self._vault, self._clock.now)
            done = await book.rotate(page, progress=_counted_from(total.rewrapped, progress))
            total = Rotation(total.rewrapped + done.rewrapped, total.unreadable + done.unreadable)
        if total.rewrapped and self._vault is not None:
            await self._audit_rotation(total, self._vault.key_version)
        return total

    async def _audit_rotation(self, done: Rotation, key_version: int) -> None:
        now = self._clock.now()
        facts = {"key_version": key_version, "rewrapped": done.rewrapped, "unreadable": len(done.unreadable)}
        event = AuditEvent(now, "secrets.rotated", "secrets", self._actor, _encode(facts).decode())
        await self._store.documents.write(audits=[event])

    # --- for requests ---------------------------------------------------------------------------------------------

    async def resolve(self, team: str, names: Iterable[str]) -> dict[str, str]:
        """The values of those names that exist; a name that is missing is the reference's to complain about.

        Afterwards `masker` knows them, and everything else of the team, also where no name is asked for.

        Raises:
            MasterKeyMissingError: names are asked for, and no master key is configured.
            SecretUnreadableError: one of them does not open.
        """
        wanted = {name for name in names if NAME.fullmatch(name)}
        if self._known is None:
            if wanted:
                raise missing_key()
            return {}
        known = await self._known.team(team, not_older_seconds=FRESH_SECONDS)
        if not wanted <= known.values.keys():
            self._known.forget(team)
            known = await self._known.team(team, not_older_seconds=FRESH_SECONDS)
        found: dict[str, str] = {}
        for name in sorted(wanted & known.values.keys()):
            value = known.values[name]
            if isinstance(value, SecretUnreadableError):
                raise SecretUnreadableError(value.team, value.name, value.reason)
            found[name] = value
        return found

    async def missing(self, team: str, tree: Any) -> Sequence[str]:
        """The names that texts of a tree refer to and that do not exist. Needs no master key."""
        named = loosely_named(tree)
        return sorted(named - {facts.name for facts in await self.list(team)}) if named else []

    async def know_all(self) -> None:
        """Learn the secrets of every team, so that none of them shows in what is written down here."""
        if self._known is not None:
            for team in sorted({DEFAULT_TEAM, *await self._documents.teams()}):
                await self._known.team(team, not_older_seconds=FRESH_SECONDS)

    # --- for whatever is written down -----------------------------------------------------------------------------

    def masker(self, team: str) -> Masker:
        """Masks the secrets of a team, as far as they are known here; after `resolve` they all are."""
        return NOTHING if self._known is None else self._known.masker(team)

    def mask(self, text: str) -> str:
        """The text without the secrets of any team that is known here."""
        return text if self._known is None else self._known.mask(text)

    async def _changed(self, team: str) -> None:
        if self._known is not None:
            self._known.forget(team)
            if self._known.holds(team):
                # at once: what was just put must not appear in the next log line
                await self._known.team(team, not_older_seconds=FRESH_SECONDS)

    # --- signing keys ---------------------------------------------------------------------------------------------

    async def signing_keys(self, schedule_id: str, team: str = DEFAULT_TEAM) -> Sequence[SigningKey]:
        """The keys that sign the requests of a schedule, newest first; the first is made when they are first asked for.

        Raises:
            MasterKeyMissingError: no master key is configured to seal them with.
        """
        return await self._sealing().of(schedule_id, team)

    async def made_signing_keys(self, schedule_id: str, team: str = DEFAULT_TEAM) -> Sequence[SigningKey]:
        """Return the same as `signing_keys`, but make none: empty if the first was not requested yet."""
        return await self._sealing().made(schedule_id, team)

    async def rotate_signing_keys(
        self, schedule_id: str, team: str = DEFAULT_TEAM, *, overlap: timedelta = OVERLAP
    ) -> Sequence[SigningKey]:
        """Replace the signing key of a schedule; the old one signs on for `overlap` beside the new."""
        return await self._sealing().replace(schedule_id, team, overlap)

    async def drop_signing_keys(self, schedule_id: str, team: str = DEFAULT_TEAM) -> bool:
        """Forget the signing keys of a schedule. False: there are none."""
        return await self._sealing().drop(schedule_id, team)

    def _sealing(self) -> SigningKeys:
        if self._signing is None:
            raise missing_key()
        return self._signing


def _vault(keys: KeyRing) -> Vault:
    try:
        from noonbell.actions.secrets.vault import Vault  # noqa: PLC0415 - its cipher comes with an extra
    except ModuleNotFoundError as error:
        raise MasterKeyError("the settings", 'secrets need a cipher: install "noonbell[server]"') from error
    return Vault(keys)


def _counted_from(before: int, progress: Callable[[int], None] | None) -> Callable[[int], None] | None:
    return None if progress is None else lambda done: progress(before + done)
