"""Forms and cookies: protection against forged requests, and sessions.

- The session is a random token in a cookie that scripts cannot read and that other sites do not send along (HttpOnly,
  SameSite=Strict; Secure and __Host- by https). The store holds its hash.
- Every form carries a token. In a session it is that of the session; before a login it is derived from a second random
  cookie. A site that cannot read our pages cannot know either.
- A request whose headers name another site as its origin is refused, even with a valid token.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from typing import Final
from urllib.parse import parse_qs, urlsplit

from fastapi import Request
from fastapi.responses import Response

from noonbell.access import Caller, Session
from noonbell.api.problems import ProblemError
from noonbell.bootstrap import Service

SESSION_COOKIE: Final = "noonbell_session"
FORM_COOKIE: Final = "noonbell_form"
_MOST_FIELDS: Final = 50
_LONGEST_FORM: Final = 20_000
_MOST_FIELDS_INSIDE: Final = 2_000


def cookie_name(service: Service, name: str) -> str:
    """Return the name of a cookie; with https, no other host and no proxy on the way can set it."""
    return f"__Host-{name}" if service.settings.is_https else name


def read_cookie(service: Service, request: Request, name: str) -> str | None:
    return request.cookies.get(cookie_name(service, name))


def set_cookie(service: Service, response: Response, name: str, value: str, *, seconds: int | None = None) -> None:
    response.set_cookie(
        cookie_name(service, name), value, max_age=seconds, path="/", httponly=True, samesite="strict",
        secure=service.settings.is_https,
    )  # fmt: skip


def drop_cookie(service: Service, response: Response, name: str) -> None:
    response.delete_cookie(
        cookie_name(service, name), path="/", httponly=True, samesite="strict", secure=service.settings.is_https
    )


async def session_of(service: Service, request: Request) -> tuple[Session, Caller] | None:
    """Return the session and the caller of a request; None if it has no valid session."""
    token = read_cookie(service, request, SESSION_COOKIE)
    return None if not token else await service.access.session(token)


# --- forms ------------------------------------------------------------------------------------------------------------


def new_form_cookie() -> str:
    return secrets.token_urlsafe(24)


def form_token(cookie: str) -> str:
    """Return the token of a form before login that belongs to this cookie."""
    return hashlib.sha256(f"noonbell form {cookie}".encode()).hexdigest()


async def read_form(request: Request) -> dict[str, str]:
    """Return the fields of a form that is sent before login, with the last value of each."""
    return {name: values[-1] for name, values in (await read_fields(request, _LONGEST_FORM, _MOST_FIELDS)).items()}


async def read_fields(
    request: Request, longest: int | None = None, most: int = _MOST_FIELDS_INSIDE
) -> dict[str, list[str]]:
    """Return the fields of a form with all their values; without `longest`, the limit of all requests applies."""
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/x-www-form-urlencoded":
        raise ProblemError(415, "This page takes a form (application/x-www-form-urlencoded)")
    body = bytearray()
    async for part in request.stream():
        body += part
        if longest is not None and len(body) > longest:
            raise ProblemError(413, f"A form may have {longest} bytes at most", headers={"Connection": "close"})
    try:
        return parse_qs(body.decode(), keep_blank_values=True, max_num_fields=most, errors="strict")
    except ValueError:
        raise ProblemError(400, "The form is not valid UTF-8") from None


def require_own_form(request: Request, given: str, right: str | None) -> None:
    """Raise unless the form has the token of one of our pages."""
    if right is None or not hmac.compare_digest(given.encode(), right.encode()):
        raise ProblemError(
            403, "This form is too old or comes from elsewhere; load the page again", kind="form-foreign"
        )
    if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        raise ProblemError(403, "This form was sent from another site", kind="form-foreign")
    origin = request.headers.get("origin")
    if origin not in (None, "null") and urlsplit(str(origin)).netloc != request.headers.get("host"):
        raise ProblemError(403, "This form was sent from another site", kind="form-foreign")
