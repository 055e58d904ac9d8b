"""The data of access: the records that people see, the bodies that are stored, and the checks of their fields."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime
from typing import Final, Literal, get_args

import msgspec

from noonbell.errors import AccessInvalidError

Scope = Literal["read", "write", "admin"]
SCOPES: Final[tuple[Scope, ...]] = get_args(Scope)
DEFAULT_TEAM: Final = "default"

TEAM: Final = "team"
API_KEY: Final = "api_key"
USER: Final = "user"
SESSION: Final = "session"
FIRST_ADMIN: Final = "first_admin"
LOGIN_FAILURES: Final = "login_failures"
PASSWORD_LINK: Final = "password_link"  # noqa: S105 - a kind of document

SHORTEST_PASSWORD: Final = 10
LONGEST_PASSWORD: Final = 1_000
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_.-]{0,62}", re.ASCII)
_LONGEST_TITLE: Final = 200


class Caller(msgspec.Struct, frozen=True):
    """The identity behind a key or a session: its name, its team, and what it may do."""

    actor: str
    team: str
    scopes: frozenset[Scope]
    key_id: str | None = None
    user_id: str | None = None

    def may(self, scope: Scope) -> bool:
        return scope in self.scopes

    @property
    def manages_teams(self) -> bool:
        """Admins of the first team look after all teams; the data of other teams they do not see."""
        return self.team == DEFAULT_TEAM and "admin" in self.scopes


class Team(msgspec.Struct, frozen=True):
    name: str
    title: str
    created_at: datetime


class ApiKey(msgspec.Struct, frozen=True):
    """The facts of a key that may be shown; the key itself is shown once, when it is created."""

    key_id: str
    team: str
    name: str
    scopes: tuple[Scope, ...]
    created_at: datetime
    created_by: str
    expires_at: datetime | None
    last_used_at: datetime | None


class User(msgspec.Struct, frozen=True):
    name: str
    team: str
    scope: Scope
    created_at: datetime


class Session(msgspec.Struct, frozen=True):
    """A login. `token` is the value of the cookie, `csrf` what forms of this session carry."""

    token: str
    csrf: str
    user: str
    expires_at: datetime


# --- what is stored ---------------------------------------------------------------------------------------------------


class TeamBody(msgspec.Struct, frozen=True):
    title: str


class KeyBody(msgspec.Struct, frozen=True):
    name: str
    scopes: tuple[Scope, ...]
    digest: str  # SHA-256 of the secret part, which is random and long: nothing slower is needed
    created_by: str
    expires_at: int | None = None
    last_used_at: int | None = None


class UserBody(msgspec.Struct, frozen=True):
    password: str  # as argon2 writes it; empty where none was chosen yet
    scope: Scope = "admin"


class SessionBody(msgspec.Struct, frozen=True):
    user: str
    csrf: str
    expires_at: int


class LinkBody(msgspec.Struct, frozen=True):
    digest: str
    expires_at: int


class FailuresBody(msgspec.Struct, frozen=True):
    failures: int
    last_at: int


# --- checks -----------------------------------------------------------------------------------------------------------


def implied(scopes: Iterable[Scope]) -> frozenset[Scope]:
    """Return the scopes with the lesser ones that they imply: write implies read."""
    return frozenset(SCOPES[: max((SCOPES.index(scope) + 1 for scope in scopes), default=0)])


def check_scopes(value: object) -> tuple[Scope, ...]:
    given = [value] if isinstance(value, str) else value
    if not isinstance(given, list | tuple | set | frozenset) or not given:
        raise AccessInvalidError("scopes", value, f"must be one or more of {', '.join(SCOPES)}")
    unknown = [one for one in given if one not in SCOPES]
    if unknown:
        raise AccessInvalidError("scopes", unknown[0], f"must be one or more of {', '.join(SCOPES)}")
    return tuple(scope for scope in SCOPES if scope in given)


def check_name(field: str, value: object) -> str:
    """Return the valid name of a team or a user; it appears in URLs and in the audit log."""
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        right = "must be 1 to 63 lowercase letters, digits, '_', '.' or '-', beginning with a letter or digit"
        raise AccessInvalidError(field, value, right)
    return value


def check_title(field: str, value: object) -> str:
    if not isinstance(value, str) or not value.strip() or len(value) > _LONGEST_TITLE or not value.isprintable():
        raise AccessInvalidError(field, value, f"must be a text of 1 to {_LONGEST_TITLE} characters on one line")
    return value


def check_password(value: object) -> str:
    if not isinstance(value, str) or not SHORTEST_PASSWORD <= len(value) <= LONGEST_PASSWORD:
        right = f"must have {SHORTEST_PASSWORD} to {LONGEST_PASSWORD} characters"
        raise AccessInvalidError("password", None, right)
    return value
