"""Authentication: the dependencies that give a route its `Caller`, or respond with 401, 403 or 429.

    async def list_schedules(service: Serving, caller: Reading) -> ...:

Every route takes exactly one of Reading, Writing and Administering, or is listed in PUBLIC of `api/app.py`; a test
checks the table of routes for this. The key is sent as `Authorization: Bearer nbk_…`, also on loopback.

The key of a request to the API is checked before its body is read (`admit`, called by `api/middleware.py`); the
dependencies reuse the caller found then. A wrong key costs ten times a right one in the bucket of its address, so that
guessing is slow; a key from an address whose bucket is empty is not looked up at all.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Final, cast

from fastapi import Depends, Request, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from noonbell.access import Caller, Scope
from noonbell.access.address_keys import counted_as
from noonbell.api.deps import Serving
from noonbell.api.problems import ProblemError
from noonbell.api.request_limits import Buckets
from noonbell.bootstrap import Service

_WRONG_KEY_COSTS: Final = 10.0
# The caller authenticated by a key. `noonbell.caller` may also hold a session's user, which the API does not accept.
_ADMITTED: Final = "noonbell.admitted"
_bearer = HTTPBearer(auto_error=False, scheme_name="API key", description="An API key, such as nbk_…")
_Credentials = Annotated[HTTPAuthorizationCredentials | None, Security(_bearer)]


class RateLimits:
    """The buckets of one service."""

    def __init__(self, service: Service) -> None:
        elapsed = service.clock.elapsed
        self.keys = Buckets(service.settings.key_requests_per_minute, elapsed)
        self.addresses = Buckets(service.settings.address_requests_per_minute, elapsed)


def address_of(request: Request) -> str:
    """Return the address that a request comes from, as far as the server knows it."""
    return "unknown" if request.client is None else request.client.host


def require_room(seconds: int | None) -> None:
    if seconds is not None:
        detail = f"Too many requests; try again in {seconds} s"
        raise ProblemError(429, detail, kind="too-many-requests", headers={"Retry-After": str(seconds)})


def require_room_of_address(request: Request) -> None:
    """Raise 429 if too many requests came from the address; a network of IPv6 counts as one address."""
    limits: RateLimits = request.app.state.limits
    require_room(limits.addresses.take(counted_as(address_of(request))))


async def admit(request: Request, service: Service) -> None:
    """Authenticate a request by its headers alone, so that without a key no body is read or parsed."""
    await _caller(request, service, await _bearer(request))


async def _caller(request: Request, service: Serving, credentials: _Credentials) -> Caller:
    if _ADMITTED in request.scope:
        return cast("Caller", request.scope[_ADMITTED])
    limits: RateLimits = request.app.state.limits
    require_room_of_address(request)
    if credentials is None:
        raise _unauthorized("Send an API key as Authorization: Bearer nbk_…", "key-missing")
    caller = await service.access.authenticate(credentials.credentials)
    if caller is None:
        limits.addresses.fine(counted_as(address_of(request)), _WRONG_KEY_COSTS)
        raise _unauthorized("This API key is not known, was revoked or has expired", "key-unknown")
    require_room(limits.keys.take(caller.key_id or caller.actor))
    request.scope[_ADMITTED] = caller
    request.scope["noonbell.caller"] = caller  # for the access log, and for what problems may show
    return caller


def _unauthorized(detail: str, kind: str) -> ProblemError:
    return ProblemError(401, detail, kind=kind, headers={"WWW-Authenticate": 'Bearer realm="noonbell"'})


def require_scope(request: Request, scope: Scope) -> None:
    """Raise 403 if the caller lacks the scope; checked before the body is decoded."""
    caller = request.scope.get(_ADMITTED)
    if caller is not None:
        _require(caller, scope)


def _require(caller: Caller, scope: Scope) -> None:
    if not caller.may(scope):
        held = ", ".join(sorted(caller.scopes)) or "none"
        raise ProblemError(403, f"This needs a key with the scope {scope}; this one has {held}", kind="scope-missing")


def _requiring(scope: Scope) -> Callable[..., Awaitable[Caller]]:
    async def require(caller: Annotated[Caller, Depends(_caller)]) -> Caller:
        _require(caller, scope)
        return caller

    return require


reader = _requiring("read")
writer = _requiring("write")
admin = _requiring("admin")

Reading = Annotated[Caller, Depends(reader)]
Writing = Annotated[Caller, Depends(writer)]
Administering = Annotated[Caller, Depends(admin)]

# The scope that a dependency requires, for the test of all routes.
REQUIRES: Final[dict[Callable[..., Any], Scope]] = {reader: "read", writer: "write", admin: "admin"}
