"""Sessions: the dependencies that give a page its `RequestContext`, or redirect to the login.

    async def show(visitor: Visiting) -> Response:          # every user who is logged in
    async def change(visitor: Changing) -> Response:        # may write; the form is checked and read
    async def manage(visitor: Managing) -> Response:        # as Changing, for admins

Every page takes exactly one of them; a test checks the table of routes for this. Changes take a POST, and a POST
without the token of its session is refused before the page handles it.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Final

from fastapi import Depends, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from noonbell.access import Caller, Scope, Session
from noonbell.api.callers import RateLimits, require_room, require_room_of_address
from noonbell.api.deps import Serving, schedules_of
from noonbell.api.problems import ProblemError
from noonbell.bootstrap import Service
from noonbell.core.instants import moment
from noonbell.schedules import Schedules
from noonbell.web import forms, rendering

NOTICE_COOKIE: Final = "noonbell_notice"
CSRF_HEADER: Final = "x-csrf-token"
_NOTICE_SECONDS: Final = 60
_LONGEST_NOTICE: Final = 1_000
_SEE_OTHER: Final = 303


class NotLoggedInError(Exception):
    """The request has no valid session: `web/routing.py` redirects to the login."""


class Form(Mapping[str, str]):
    """The fields of a form: the last value of each, and `all` values of a field that may be repeated."""

    def __init__(self, fields: Mapping[str, Sequence[str]]) -> None:
        self._fields = fields

    def __getitem__(self, name: str) -> str:
        return self._fields[name][-1]

    def __iter__(self) -> Any:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)

    def all(self, name: str) -> list[str]:
        return list(self._fields.get(name, ()))

    def text(self, name: str) -> str:
        """Return the value without surrounding blanks; empty if it was not sent."""
        return self.get(name, "").strip()

    def ticked(self, name: str) -> bool:
        return self.get(name, "") not in ("", "off", "false", "0")


class RequestContext:
    """The user who is logged in, and the current request."""

    def __init__(self, service: Service, request: Request, session: Session, caller: Caller) -> None:
        self.service = service
        self.request = request
        self.session = session
        self.caller = caller
        self.form = Form({})

    @property
    def team(self) -> str:
        return self.caller.team

    @property
    def schedules(self) -> Schedules:
        """The schedules of the user's team; changes are recorded under the user's name."""
        return schedules_of(self.service, self.caller)

    @property
    def now(self) -> datetime:
        return moment(self.service.clock.now())

    @property
    def by_script(self) -> bool:
        """True for a request of a script, which expects a part of a page and follows no redirect."""
        return self.request.headers.get("hx-request") == "true"

    async def masking(self) -> Callable[[str], str]:
        """Return a function that masks the secrets of the user's team in a text.

        Secrets of other teams are not masked: a masked text would confirm a guess.
        """
        secrets = self.service.secrets
        await secrets.resolve(self.team, ())  # afterwards the masker knows them all
        return secrets.masker(self.team).text

    # --- answers --------------------------------------------------------------------------------------------------

    def page(self, template: str, status: int = 200, **values: Any) -> HTMLResponse:
        """Render a page with the parts that every page has, and show the notice of the last change once."""
        notice = _read_notice(forms.read_cookie(self.service, self.request, NOTICE_COOKIE))
        shown = rendering.render(template, {**self._shared(), "notice": notice, **values})
        answer = HTMLResponse(shown, status)
        if notice is not None:
            forms.drop_cookie(self.service, answer, NOTICE_COOKIE)
        return answer

    def part(self, template: str, status: int = 200, **values: Any) -> HTMLResponse:
        """Render a part of a page, for a script that inserts it."""
        shown = rendering.render(template, {**self._shared(), **values})
        return HTMLResponse(shown, status)

    def go(self, path: str, notice: str | None = None, tone: str = "good") -> Response:
        """Redirect to another page, which shows the notice; `tone` is good, bad or plain."""
        answer: Response
        if self.by_script:
            answer = Response(status_code=200, headers={"HX-Redirect": path})
        else:
            answer = RedirectResponse(path, _SEE_OTHER)
        if notice is not None:
            forms.set_cookie(self.service, answer, NOTICE_COOKIE, _packed_notice(tone, notice), seconds=_NOTICE_SECONDS)
        return answer

    def _shared(self) -> dict[str, Any]:
        url = self.request.url
        return {
            "me": self.session.user,
            "team": self.caller.team,
            "may_write": self.caller.may("write"),
            "may_manage": self.caller.may("admin"),
            "may_operate": self.caller.manages_teams,
            "csrf": self.session.csrf,
            "path": url.path,
            "here": url.path + (f"?{url.query}" if url.query else ""),
            "query": dict(self.request.query_params),
            "now": self.now,
            "demo": self.service.settings.demo,
        }


def _packed_notice(tone: str, notice: str) -> str:
    return base64.urlsafe_b64encode(json.dumps([tone, notice[:_LONGEST_NOTICE]]).encode()).decode()


def _read_notice(cookie: str | None) -> tuple[str, str] | None:
    """Return the notice in a cookie; None for a forged or damaged one. The notice is shown as plain text."""
    try:
        tone, notice = json.loads(base64.urlsafe_b64decode(cookie or ""))
    except (ValueError, TypeError):
        return None
    if tone not in ("good", "bad", "plain") or not isinstance(notice, str):
        return None
    return tone, notice[:_LONGEST_NOTICE]


# --- dependencies -----------------------------------------------------------------------------------------------------


async def _visitor(request: Request, service: Serving) -> RequestContext:
    require_room_of_address(request)
    found = await forms.session_of(service, request)
    if found is None:
        raise NotLoggedInError
    visitor = RequestContext(service, request, *found)
    request.state.visitor = visitor  # for the page of an error
    limits: RateLimits = request.app.state.limits
    require_room(limits.keys.take(visitor.caller.actor))  # a person has as much as a key
    request.scope["noonbell.caller"] = visitor.caller  # for the access log
    if request.method not in ("GET", "HEAD"):
        fields = await forms.read_fields(request)
        given = request.headers.get(CSRF_HEADER) or fields.get("csrf", [""])[-1]
        forms.require_own_form(request, given, visitor.session.csrf)
        visitor.form = Form(fields)
    return visitor


def _requiring(scope: Scope) -> Callable[..., Awaitable[RequestContext]]:
    async def require(visitor: Annotated[RequestContext, Depends(_visitor)]) -> RequestContext:
        if not visitor.caller.may(scope):
            raise ProblemError(403, f"This needs the right to {scope}; yours is less", kind="scope-missing")
        return visitor

    return require


reader = _requiring("read")
writer = _requiring("write")
manager = _requiring("admin")

Visiting = Annotated[RequestContext, Depends(reader)]
Changing = Annotated[RequestContext, Depends(writer)]
Managing = Annotated[RequestContext, Depends(manager)]

# The right that a page requires, for the test of all pages.
REQUIRES: Final[dict[Callable[..., Any], Scope]] = {reader: "read", writer: "write", manager: "admin"}
