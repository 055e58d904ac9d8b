"""Who calls: the dependencies that give a route its `Caller`, or answer 401, 403 or 429.

    async def list_schedules(service: Serving, caller: Reading) -> ...:

Every route takes exactly one of Reading, Writing and Administering, or stands in PUBLIC of `api/app.py`; a test goes
through the table of routes and holds that. The key comes as `Authorization: Bearer nbk_…`, on loopback too.

A wrong key costs ten times a right one in the bucket of its address, so that guessing is slow; an address that has used
up its bucket is not even looked up.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Final

from fastapi import Depends, Request, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from noonbell.access import Caller, Scope
from noonbell.api.deps import Serving
from noonbell.api.limits import Buckets
from noonbell.api.problems import ProblemError
from noonbell.bootstrap import Service

_WRONG_KEY_COSTS: Final = 10.0
_bearer = HTTPBearer(auto_error=False, scheme_name="API key", description="An API key, such as nbk_…")
_Credentials = Annotated[HTTPAuthorizationCredentials | None, Security(_bearer)]


class RateLimits:
    """The buckets of one service."""

    def __init__(self, service: Service) -> None:
        elapsed = service.clock.elapsed
        self.keys = Buckets(service.settings.key_requests_per_minute, elapsed)
        self.addresses = Buckets(service.settings.address_requests_per_minute, elapsed)


def address_of(request: Request) -> str:
    """Where a request comes from, as far as the server knows."""
    return "unknown" if request.client is None else request.client.host


def require_room(seconds: int | None) -> None:
    if seconds is not None:
        detail = f"Too many requests; try again in {seconds} s"
        raise ProblemError(429, detail, kind="too-many-requests", headers={"Retry-After": str(seconds)})


async def require_caller_first(request: Request, service: Service) -> None:
    """For a request that could not be read: whoever has no key is told that, and nothing about what he has sent."""
    if "noonbell.caller" not in request.scope:
        await _caller(request, service, await _bearer(request))


async def _caller(request: Request, service: Serving, credentials: _Credentials) -> Caller:
    limits: RateLimits = request.app.state.limits
    address = address_of(request)
    require_room(limits.addresses.take(address))
    if credentials is None:
        raise _unauthorized("Send an API key as Authorization: Bearer nbk_…", "key-missing")
    caller = await service.access.authenticate(credentials.credentials)
    if caller is None:
        limits.addresses.fine(address, _WRONG_KEY_COSTS)
        raise _unauthorized("This API key is not known, was revoked or has expired", "key-unknown")
    require_room(limits.keys.take(caller.key_id or caller.actor))
    request.scope["noonbell.caller"] = caller  # for the access log
    return caller


def _unauthorized(detail: str, kind: str) -> ProblemError:
    return ProblemError(401, detail, kind=kind, headers={"WWW-Authenticate": 'Bearer realm="noonbell"'})


def _requiring(scope: Scope) -> Callable[..., Awaitable[Caller]]:
    async def require(caller: Annotated[Caller, Depends(_caller)]) -> Caller:
        if not caller.may(scope):
            held = ", ".join(sorted(caller.scopes)) or "none"
            raise ProblemError(
                403, f"This needs a key with the scope {scope}; this one has {held}", kind="scope-missing"
            )
        return caller

    return require


reader = _requiring("read")
writer = _requiring("write")
admin = _requiring("admin")

Reading = Annotated[Caller, Depends(reader)]
Writing = Annotated[Caller, Depends(writer)]
Administering = Annotated[Caller, Depends(admin)]

# Which scope a dependency asks for: what the test of all routes goes by.
REQUIRES: Final[dict[Callable[..., Any], Scope]] = {reader: "read", writer: "write", admin: "admin"}
