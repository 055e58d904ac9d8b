"""Members of teams: their team, their scope, and the one-time links by which they choose a password.

No user learns the password of another: a new user, or one who forgot the password, gets a link. It works once, for
INVITATION_LASTS, and only the latest one does. The store has its hash.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Sequence
from datetime import timedelta
from typing import Final

import msgspec

from noonbell.access import access_records as checked
from noonbell.access.access_records import PASSWORD_LINK, TEAM, USER, LinkBody, User, UserBody
from noonbell.access.acting import digest
from noonbell.access.people import People, user_of
from noonbell.core.instants import MICROSECOND
from noonbell.core.records import Document, DocumentWrite
from noonbell.errors import AccessInvalidError, AccessNotFoundError, DocumentConflictError, LoginRefusedError
from noonbell.ports import DocumentFilter
from noonbell.store.documents import removals

INVITATION_LASTS: Final = timedelta(days=3)
_encode = msgspec.json.Encoder().encode
_user_body = msgspec.json.Decoder(UserBody).decode
_USED: Final = "This link was used, is too old, or is not the latest one; ask for another"


class Members(People):
    """The members of teams."""

    async def create_user(self, name: str, team: str, scope: str, password: str | None = None) -> User:
        """Create a user of a team. The user has no password and cannot log in until a link of theirs is used."""
        chosen, (allowed,) = checked.check_name("name", name), checked.check_scopes([scope])
        where = await self._require_team(team)
        hashed = "" if password is None else await self._shared.passwords.hash(checked.check_password(password))
        body = UserBody(hashed, allowed)
        write = DocumentWrite(USER, chosen, where, _encode(body).decode(), expected=0)
        audit = self._audit_event("user.created", chosen, {"scope": allowed}, where)
        try:
            (document,) = await self._store.documents.write([write], self._now(), [audit])
        except DocumentConflictError:
            raise AccessInvalidError("name", chosen, "is taken; choose another") from None
        return user_of(document)

    async def list_members(self, team: str | None, *, after: str = "", limit: int = 100) -> Sequence[User]:
        """The users of a team, or of all, by name and past `after`."""
        return [user_of(one) for one in await self._store.documents.find(DocumentFilter(USER, team=team), after, limit)]

    async def get_user(self, name: str) -> User:
        return user_of(await self._find_user(name))

    async def set_scope(self, name: str, scope: str) -> User:
        """Set the scope of a user. It applies from the user's next request on."""
        (allowed,) = checked.check_scopes([scope])
        found = await self._find_user(name)
        body = _user_body(found.body)
        if body.scope == allowed:
            return user_of(found)
        changed = msgspec.structs.replace(body, scope=allowed)
        write = DocumentWrite(USER, name, found.team, _encode(changed).decode(), expected=found.version)
        audit = self._audit_event("user.scope_changed", name, {"scope": allowed, "before": body.scope}, found.team)
        (document,) = await self._store.documents.write([write], self._now(), [audit])
        return user_of(document)

    async def _find_user(self, name: str) -> Document:
        found = await self._store.documents.find(DocumentFilter(USER, [name]))
        if not found:
            raise AccessNotFoundError("user", name)
        return found[0]

    async def _require_team(self, name: object) -> str:
        chosen = checked.check_name("team", name)
        if not await self._store.documents.find(DocumentFilter(TEAM, [chosen])):
            raise AccessNotFoundError("team", chosen)
        return chosen

    # --- links ----------------------------------------------------------------------------------------------------

    async def new_password_link(self, name: str) -> str:
        """Return the token of a one-time link to choose a password. The old password works until the link is used."""
        found, token, now = await self._find_user(name), secrets.token_urlsafe(24), self._now()
        until = now + INVITATION_LASTS // MICROSECOND
        body = _encode(LinkBody(digest(token), until)).decode()
        write = DocumentWrite(PASSWORD_LINK, name, found.team, body, wake_at=until)
        audit = self._audit_event("user.link_made", name, {}, found.team)
        await self._store.documents.write([write], now, [audit])
        return token

    async def password_link_fits(self, name: str, token: str) -> bool:
        return await self._fitting_link(name, token) is not None

    async def choose_password(self, name: str, token: str, password: str) -> User:
        """Use a link up. All sessions of this user end.

        Raises:
            LoginRefusedError: the link does not fit.
            AccessInvalidError: the password cannot be; the link works on.
        """
        checked.check_password(password)
        link = await self._fitting_link(name, token)
        # taken out first: of two simultaneous requests one finds nothing to take
        if link is None or not await self._store.documents.write(removed=removals(PASSWORD_LINK, [name])):
            raise LoginRefusedError(_USED)
        await self.set_password(name, password)
        return await self.get_user(name)

    async def _fitting_link(self, name: str, token: str) -> Document | None:
        found = await self._store.documents.find(DocumentFilter(PASSWORD_LINK, [name]))
        if not found or not await self._store.documents.find(DocumentFilter(USER, [name])):
            return None
        body = msgspec.json.decode(found[0].body, type=LinkBody)
        fits = hmac.compare_digest(digest(token), body.digest) and self._now() < body.expires_at
        return found[0] if fits else None
