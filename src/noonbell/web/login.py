"""The pages before login: the first admin, links to choose a password, login and logout.

    /setup/<token>   makes the first admin, once, by the link that the service printed
    /welcome/<name>/<token>   chooses a password, once, by the link that an admin has made
    /login           a name and a password; too many failures make it wait
    /logout          ends the session (POST only, so that no link can do it)

Every answer is a whole page without scripts. Errors are shown on the page with the form.
"""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Path, Request
from fastapi.responses import RedirectResponse, Response

from noonbell.access import User
from noonbell.access.people import SESSION_LASTS
from noonbell.api.callers import address_of, require_room_of_address
from noonbell.api.deps import Serving
from noonbell.bootstrap import Service
from noonbell.errors import AccessInvalidError, LoginRefusedError
from noonbell.web import forms, rendering

router = APIRouter(include_in_schema=False)

_SEE_OTHER: Final = 303
Token = Annotated[str, Path(pattern=r"^[A-Za-z0-9_-]{1,100}$")]
NameInPath = Annotated[str, Path(alias="name", pattern=r"^[a-z0-9][a-z0-9_.-]{0,62}$")]


def _asking(service: Service, request: Request, template: str, status: int = 200, **values: str) -> Response:
    """Render a page with a form, for a visitor who is not logged in."""
    cookie = forms.read_cookie(service, request, forms.FORM_COOKIE) or forms.new_form_cookie()
    answer = rendering.page(template, status, csrf=forms.form_token(cookie), **values)
    forms.set_cookie(service, answer, forms.FORM_COOKIE, cookie)
    return answer


async def _own_form(service: Service, request: Request) -> dict[str, str]:
    cookie = forms.read_cookie(service, request, forms.FORM_COOKIE)
    fields = await forms.read_form(request)
    forms.require_own_form(request, fields.get("csrf", ""), None if cookie is None else forms.form_token(cookie))
    return fields


def _inside(wanted: str) -> str:
    """Return the path to open after login, or the start page if a browser could read it as another site."""
    plain = wanted.isascii() and wanted.isprintable() and not set(wanted) & set("\\ ")
    return wanted if plain and wanted.startswith("/") and not wanted.startswith("//") else "/"


async def _logged_in(service: Service, request: Request, user: User, wanted: str = "/") -> Response:
    access = service.access.acting(f"user:{user.name}")
    before = forms.read_cookie(service, request, forms.SESSION_COOKIE)
    if before:
        await access.close_session(before)
    session = await access.open_session(user, address_of(request))
    answer = RedirectResponse(_inside(wanted), _SEE_OTHER)
    lasts = int(SESSION_LASTS.total_seconds())
    forms.set_cookie(service, answer, forms.SESSION_COOKIE, session.token, seconds=lasts)
    forms.drop_cookie(service, answer, forms.FORM_COOKIE)
    return answer


# --- pages ------------------------------------------------------------------------------------------------------------


@router.get("/login")
async def login_form(service: Serving, request: Request) -> Response:
    require_room_of_address(request)
    wanted = _inside(request.query_params.get("next", "/"))
    if await forms.session_of(service, request) is not None:
        return RedirectResponse(wanted, _SEE_OTHER)
    if not await service.access.has_admin():
        return rendering.page("no_admin.html")
    return _asking(service, request, "login.html", problem="", name="", wanted=wanted)


@router.post("/login")
async def login(service: Serving, request: Request) -> Response:
    require_room_of_address(request)
    fields = await _own_form(service, request)
    name, wanted = fields.get("name", "").strip().lower(), _inside(fields.get("next", "/"))
    try:
        user = await service.access.verify_password(name, fields.get("password", ""), address_of(request))
    except LoginRefusedError as error:
        wait = error.retry_after_seconds
        status = 401 if wait is None else 429
        answer = _asking(service, request, "login.html", status, problem=error.reason, name=name[:100], wanted=wanted)
        if wait is not None:
            answer.headers["Retry-After"] = str(wait)
        return answer
    return await _logged_in(service, request, user, wanted)


@router.post("/logout")
async def logout(service: Serving, request: Request) -> Response:
    require_room_of_address(request)
    fields = await forms.read_form(request)
    found = await forms.session_of(service, request)
    if found is not None:
        forms.require_own_form(request, fields.get("csrf", ""), found[0].csrf)
        await service.access.acting(found[1].actor).close_session(found[0].token)
    answer = RedirectResponse("/login", _SEE_OTHER)
    forms.drop_cookie(service, answer, forms.SESSION_COOKIE)
    return answer


@router.get("/setup/{token}")
async def setup_form(service: Serving, request: Request, token: Token) -> Response:
    require_room_of_address(request)
    if not await service.access.first_admin_token_fits(token):
        return rendering.page("link_used.html", 404)
    return _asking(service, request, "setup.html", problem="", name="admin")


@router.post("/setup/{token}")
async def setup(service: Serving, request: Request, token: Token) -> Response:
    require_room_of_address(request)
    fields = await _own_form(service, request)
    name, password = fields.get("name", "").strip().lower(), fields.get("password", "")
    if password != fields.get("again", ""):
        return _asking(service, request, "setup.html", 422, problem="The two passwords differ", name=name[:100])
    try:
        user = await service.access.acting("first-admin-link").create_first_admin(token, name, password)
    except AccessInvalidError as error:
        return _asking(service, request, "setup.html", 422, problem=str(error), name=name[:100])
    except LoginRefusedError:
        return rendering.page("link_used.html", 404)
    return await _logged_in(service, request, user)


@router.get("/welcome/{name}/{token}")
async def welcome_form(service: Serving, request: Request, name: NameInPath, token: Token) -> Response:
    require_room_of_address(request)
    if not await service.access.password_link_fits(name, token):
        return rendering.page("link_over.html", 404)
    return _asking(service, request, "welcome.html", problem="", name=name)


@router.post("/welcome/{name}/{token}")
async def welcome(service: Serving, request: Request, name: NameInPath, token: Token) -> Response:
    require_room_of_address(request)
    fields = await _own_form(service, request)
    password = fields.get("password", "")
    if password != fields.get("again", ""):
        return _asking(service, request, "welcome.html", 422, problem="The two passwords differ", name=name)
    try:
        user = await service.access.acting(f"user:{name}").choose_password(name, token, password)
    except AccessInvalidError as error:
        return _asking(service, request, "welcome.html", 422, problem=str(error), name=name)
    except LoginRefusedError:
        return rendering.page("link_over.html", 404)
    return await _logged_in(service, request, user)
