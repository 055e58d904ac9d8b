"""People: users and their passwords, the link for the first admin, sessions.

No password and no token is stored: argon2id of the one, SHA-256 of the other, which is random.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Sequence
from datetime import timedelta
from typing import Final

import msgspec

from noonbell.access import access_records as checked
from noonbell.access.access_records import (
    DEFAULT_TEAM,
    FIRST_ADMIN,
    LOGIN_FAILURES,
    PASSWORD_LINK,
    SESSION,
    USER,
    Caller,
    LinkBody,
    Session,
    SessionBody,
    User,
    UserBody,
    implied,
)
from noonbell.access.acting import Acting, digest
from noonbell.core.instants import MICROSECOND, moment
from noonbell.core.records import Document, DocumentWrite
from noonbell.errors import AccessInvalidError, AccessNotFoundError, DocumentConflictError, LoginRefusedError
from noonbell.ports import DocumentFilter
from noonbell.store.documents import due_documents, removals

SESSION_LASTS: Final = timedelta(hours=12)
LINK_LASTS: Final = timedelta(hours=24)
_PAGE: Final = 500
_LINK_ID: Final = "first-admin"
_encode = msgspec.json.Encoder().encode
_user_body = msgspec.json.Decoder(UserBody).decode


class People(Acting):
    """The users who may log in."""

    # --- users ----------------------------------------------------------------------------------------------------

    async def has_admin(self) -> bool:
        after = ""
        while page := await self._store.documents.find(DocumentFilter(USER, team=DEFAULT_TEAM), after, _PAGE):
            if any(_user_body(document.body).scope == "admin" for document in page):
                return True
            after = page[-1].id
        return False

    async def create_admin(self, name: str, password: str) -> User:
        """Create a user of the first team with all rights there and the right to manage the teams."""
        chosen, allowed = checked.check_name("name", name), checked.check_password(password)
        body = UserBody(await self._shared.passwords.hash(allowed))
        write = DocumentWrite(USER, chosen, DEFAULT_TEAM, _encode(body).decode(), expected=0)
        audit = self._audit_event("user.created", chosen, {"scope": body.scope})
        try:
            (document,) = await self._store.documents.write([write], self._now(), [audit])
        except DocumentConflictError:
            raise AccessInvalidError("name", chosen, "is taken; choose another") from None
        await self._store.documents.write(removed=removals(FIRST_ADMIN, [_LINK_ID]))
        return user_of(document)

    async def list_users(self) -> Sequence[User]:
        """The users of all teams, by name."""
        found: list[User] = []
        while page := await self._store.documents.find(DocumentFilter(USER), found[-1].name if found else "", _PAGE):
            found += [user_of(document) for document in page]
        return found

    async def delete_user(self, name: str) -> None:
        """Remove a user and end the sessions."""
        found = await self._store.documents.find(DocumentFilter(USER, [name]))
        audit = self._audit_event("user.deleted", name, {}, found[0].team if found else DEFAULT_TEAM)
        if not found or not await self._store.documents.write(audits=[audit], removed=removals(USER, [name])):
            raise AccessNotFoundError("user", name)
        # the next user of this name is another person
        await self._store.documents.write(removed=removals(PASSWORD_LINK, [name]))
        await self._end_sessions_of(name)

    async def set_password(self, name: str, password: str) -> None:
        """Give a user a new password and end the sessions."""
        allowed = checked.check_password(password)
        found = await self._store.documents.find(DocumentFilter(USER, [name]))
        if not found:
            raise AccessNotFoundError("user", name)
        body = msgspec.structs.replace(_user_body(found[0].body), password=await self._shared.passwords.hash(allowed))
        write = DocumentWrite(USER, name, found[0].team, _encode(body).decode(), expected=found[0].version)
        audit = self._audit_event("user.password_changed", name, {}, found[0].team)
        await self._store.documents.write([write], self._now(), [audit])
        await self._store.documents.write(removed=removals(PASSWORD_LINK, [name]))
        await self._end_sessions_of(name)

    async def verify_password(self, name: str, password: str, address: str) -> User:
        """The user of this name and password.

        Raises:
            LoginRefusedError: they do not fit, or there were too many failures for this name or from this address.
        """
        attempt = await self._shared.logins.attempt(name, address)
        found = await self._store.documents.find(DocumentFilter(USER, [name])) if len(name) <= 100 else []
        body = _user_body(found[0].body) if found else None
        # verified for an unknown user as well, so that the time it takes reveals nothing
        fits = await self._shared.passwords.fits(None if body is None else body.password or None, password)
        if not fits or body is None:
            failed = self._audit_event("login.failed", name[:100], {"address": address})
            await self._store.documents.write(audits=[failed])
            raise LoginRefusedError("The name or the password is wrong")
        await self._shared.logins.succeeded(attempt)
        return user_of(found[0])

    # --- the first admin ------------------------------------------------------------------------------------------

    async def new_first_admin_token(self) -> str | None:
        """The token of a link by which the first admin can be made, once; None where there is one.

        An older link stops working.
        """
        if await self.has_admin():
            return None
        token, now = secrets.token_urlsafe(24), self._now()
        body = LinkBody(digest(token), now + LINK_LASTS // MICROSECOND)
        write = DocumentWrite(FIRST_ADMIN, _LINK_ID, DEFAULT_TEAM, _encode(body).decode())
        await self._store.documents.write([write], now)
        return token

    async def first_admin_token_fits(self, token: str) -> bool:
        found = await self._store.documents.find(DocumentFilter(FIRST_ADMIN, [_LINK_ID]))
        if not found or await self.has_admin():
            return False
        body = msgspec.json.decode(found[0].body, type=LinkBody)
        return hmac.compare_digest(digest(token), body.digest) and self._now() < body.expires_at

    async def create_first_admin(self, token: str, name: str, password: str) -> User:
        """The admin whom the holder of the link makes; the link is used up by that."""
        checked.check_name("name", name)
        checked.check_password(password)
        found = await self._store.documents.find(DocumentFilter(FIRST_ADMIN, [_LINK_ID]))
        if not await self.first_admin_token_fits(token):
            raise LoginRefusedError(
                "This link was used, has expired, or is not the latest; restart the service for a new one"
            )
        # taken out first: of two simultaneous requests one finds nothing to take
        if not found or not await self._store.documents.write(removed=removals(FIRST_ADMIN, [_LINK_ID])):
            raise LoginRefusedError("This link has just been used")
        try:
            return await self.create_admin(name, password)
        except BaseException:
            text = found[0].body
            await self._store.documents.write([DocumentWrite(FIRST_ADMIN, _LINK_ID, DEFAULT_TEAM, text)], self._now())
            raise

    # --- sessions -------------------------------------------------------------------------------------------------

    async def open_session(self, user: User, address: str) -> Session:
        token, csrf = secrets.token_urlsafe(32), secrets.token_urlsafe(24)
        expires_at = self._now() + SESSION_LASTS // MICROSECOND
        body = SessionBody(user.name, csrf, expires_at)
        write = DocumentWrite(SESSION, digest(token), user.team, _encode(body).decode(), 0, expires_at)
        audit = self._audit_event("login.succeeded", user.name, {"address": address}, user.team)
        await self._store.documents.write([write], self._now(), [audit])
        return Session(token, csrf, user.name, moment(expires_at))

    async def session(self, token: str) -> tuple[Session, Caller] | None:
        """Return the session of a cookie and its caller, or None if the session has ended."""
        found = await self._store.documents.find(DocumentFilter(SESSION, [digest(token)]))
        if not found:
            return None
        body = msgspec.json.decode(found[0].body, type=SessionBody)
        if body.expires_at <= self._now():
            return None
        users = await self._store.documents.find(DocumentFilter(USER, [body.user]))
        if not users:
            return None
        scopes = implied([_user_body(users[0].body).scope])
        caller = Caller(f"user:{body.user}", users[0].team, scopes, user_id=body.user)
        return Session(token, body.csrf, body.user, moment(body.expires_at)), caller

    async def close_session(self, token: str) -> None:
        """End a session; one that has ended already is left at that."""
        found = await self._store.documents.find(DocumentFilter(SESSION, [digest(token)]))
        if found:
            user = msgspec.json.decode(found[0].body, type=SessionBody).user
            await self._store.documents.write(
                audits=[self._audit_event("logout", user, {}, found[0].team)], removed=removals(SESSION, [found[0].id])
            )

    async def _end_sessions_of(self, user: str) -> None:
        after = ""
        while page := await self._store.documents.find(DocumentFilter(SESSION), after, _PAGE):
            ended = [one.id for one in page if msgspec.json.decode(one.body, type=SessionBody).user == user]
            if ended:
                await self._store.documents.write(removed=removals(SESSION, ended))
            after = page[-1].id

    async def sweep(self) -> int:
        """Forget sessions that have ended and failures that are long past; returns how many."""
        dropped = 0
        for kind in (SESSION, LOGIN_FAILURES, PASSWORD_LINK):
            while due := (await due_documents(self._store, kind, self._now(), _PAGE))[0]:
                dropped += len(await self._store.documents.write(removed=removals(kind, [one.id for one in due])))
        return dropped


def user_of(document: Document) -> User:
    return User(document.id, document.team, _user_body(document.body).scope, moment(document.created_at))
