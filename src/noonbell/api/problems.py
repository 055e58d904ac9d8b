"""Errors as RFC 9457 problem+json: what is wrong, in which field, and which value is valid there.

A route raises `ProblemError`, or lets an error of the package through; the table below gives its status. An unexpected
error is logged with its traceback and the id of the request; the answer holds the id and nothing else.

The secrets of the caller's team are masked in the texts of a problem. Those of other teams are not: a masked text would
reveal to the caller that it is a secret of another team. A caller without a key does not get the sent values back.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from typing import Any, Final, cast

import msgspec
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from fastapi.routing import iter_route_contexts
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.routing import compile_path

from noonbell import errors as known
from noonbell.actions.secrets.masking import Masker

MEDIA_TYPE: Final = "application/problem+json"
_LONGEST_VALUE: Final = 1_000
# The tags of routes whose bodies may hold secrets: an error must not show the sent values.
_SECRETIVE: Final = frozenset({"channels", "secrets"})
_MOST_ERRORS: Final = 20
_FOR_PROGRAMS: Final = frozenset({"type", "title", "status", "instance", "position", "end", "more_errors"})

TITLES: Final[Mapping[int, str]] = {
    400: "The request cannot be understood",
    401: "An API key is needed",
    403: "This key may not do that",
    404: "Not found",
    405: "Method not allowed",
    406: "Not acceptable",
    408: "The request took too long",
    409: "Conflict with the current state",
    412: "Changed since it was read",
    413: "The request is too large",
    415: "This media type is not understood",
    422: "A field cannot be accepted",
    428: "A condition is needed",
    429: "Too many requests",
    500: "Internal error",
    502: "The remote server failed",
    503: "Service unavailable",
}

# The first match applies; a class is listed before its base classes.
_STATUS: Final[Sequence[tuple[type[Exception], int]]] = (
    (known.ScheduleNotFoundError, 404),
    (known.MonitorNotFoundError, 404),
    (known.PingUnknownError, 404),
    (known.ChannelNotFoundError, 404),
    (known.RuleNotFoundError, 404),
    (known.TaskNotFoundError, 404),
    (known.AccessNotFoundError, 404),
    (known.LoginRefusedError, 401),
    (known.ScheduleExistsError, 409),
    (known.QuietHoursInUseError, 409),
    (known.ScheduleBusyError, 409),
    (known.ScheduleChangedError, 412),
    (known.ChannelInUseError, 409),
    (known.PlanOutdatedError, 409),
    (known.DeletionRefusedError, 409),
    (known.DocumentConflictError, 409),
    (known.SchedulerInUseError, 409),
    (known.MasterKeyError, 409),
    (known.SecretUnreadableError, 409),
    (known.CommandsOffError, 422),
    (known.DeliveryError, 502),
    (known.EgressRefusedError, 422),
    (known.EgressFailedError, 502),
    (known.EgressError, 422),
    (known.StoreUnavailableError, 503),
    (known.StoreUrlError, 422),
    (known.StoreError, 500),
    (known.TimelineAwayError, 503),
    (known.TimelineError, 500),
    (known.LanguageError, 422),
    (known.CronError, 422),
    (known.TimingError, 422),
    (known.RegistrationError, 422),
    (known.ScheduleError, 422),
    (known.MonitorError, 422),
    (known.NotifyError, 422),
    (known.AccessError, 422),
    (known.SecretError, 422),
    (known.SigningKeyError, 422),
)


class FieldError(BaseModel):
    """One field that cannot be accepted."""

    field: str = Field(description="The path of the field", examples=["action.url"])
    value: Any = Field(default=None, description="The invalid value, if it may be shown")
    reason: str = Field(description="The reason, and a valid value")


class Problem(BaseModel):
    """An error response (RFC 9457)."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "type": "urn:noonbell:problem:schedule-invalid",
                    "title": "A field cannot be accepted",
                    "status": 422,
                    "detail": "Invalid schedule: type 'sometimes' must be one of cron, interval, one_shot",
                    "field": "type",
                    "value": "sometimes",
                }
            ]
        }
    )

    type: str = Field(description="The kind of the problem, which is stable")
    title: str
    status: int
    detail: str
    instance: str | None = Field(default=None, description="The id of the request, as in the log")
    field: str | None = None
    value: Any = None
    errors: list[FieldError] | None = None
    more_errors: int | None = Field(default=None, description="The number of further errors that are not listed")
    position: int | None = Field(default=None, description="The position of the first word that is not understood")
    end: int | None = None
    accepted: list[str] | None = Field(default=None, description="The valid words at this position")
    suggestions: list[str] | None = Field(default=None, description="Similar valid texts")


class ProblemError(Exception):
    """Raised by a route: the answer is this problem."""

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        kind: str | None = None,
        field: str | None = None,
        value: object = None,
        errors: Sequence[FieldError] | None = None,
        headers: Mapping[str, str] | None = None,
        facts: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(detail)
        self.facts = dict(facts or {})  # further members of the document
        self.status = status
        self.detail = detail
        self.kind = kind
        self.field = field
        self.value = value
        self.errors = errors
        self.headers = dict(headers or {})


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """For `responses=` of a route: these statuses are problems.

    401, 403, 422, 429 and 503 need not be named: `api/openapi.py` adds them wherever they can come.
    """
    schema = {"$ref": "#/components/schemas/Problem"}
    return {status: {"description": TITLES[status], "content": {MEDIA_TYPE: {"schema": schema}}} for status in statuses}


# --- answers ----------------------------------------------------------------------------------------------------------


def answer(request: Request, problem: ProblemError) -> Response:
    """The problem as a response."""
    status = problem.status
    document: dict[str, Any] = {
        "type": f"urn:noonbell:problem:{problem.kind}" if problem.kind else "about:blank",
        "title": TITLES.get(status, "It did not work"),
        "status": status,
        "detail": problem.detail,
    }
    if request_id := request.scope.get("noonbell.request_id"):
        document["instance"] = f"urn:noonbell:request:{request_id}"
    if problem.field is not None:
        document["field"] = _sane(problem.field)
        document["value"] = presentable(problem.value)
    document.update(problem.facts)
    if problem.errors:
        document["errors"] = [one.model_dump() for one in problem.errors]
    return Response(msgspec.json.encode(_for_caller(request, document)), status, problem.headers, MEDIA_TYPE)


def _for_caller(request: Request, document: dict[str, Any]) -> dict[str, Any]:
    """Return the document with secrets masked for this caller; the fields for programs stay unchanged."""
    caller, service = request.scope.get("noonbell.caller"), getattr(request.app.state, "service", None)
    if caller is None or service is None:
        shown = {name: part for name, part in document.items() if name != "value"}
        if "errors" in shown:
            shown["errors"] = [{**one, "value": None} for one in shown["errors"]]
        return shown
    masker = service.secrets.masker(caller.team)
    return {name: part if name in _FOR_PROGRAMS else _masked(masker, part) for name, part in document.items()}


def _masked(masker: Masker, part: Any) -> Any:
    if isinstance(part, str):
        return masker.text(part, cut=len(part) >= _LONGEST_VALUE)
    return masker.value(part)


def presentable(value: object) -> Any:
    """Return a value of the request as JSON, cut to a bounded length."""
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    if value is None or isinstance(value, bool | int | float):
        return value if not isinstance(value, int) or -(2**63) <= value < 2**63 else str(value)[:_LONGEST_VALUE]
    if isinstance(value, str):
        return _sane(value[:_LONGEST_VALUE])
    try:
        text = msgspec.json.encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError):
        return _sane(repr(value)[:_LONGEST_VALUE])
    return msgspec.json.decode(text) if len(text) <= _LONGEST_VALUE else text[:_LONGEST_VALUE].decode("utf-8", "ignore")


def _sane(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


def status_for(error: type[Exception]) -> int:
    """Return the status of a class of errors; 500 for a class that the table does not list."""
    return next((status for kind, status in _STATUS if issubclass(error, kind)), 500)


def of_error(error: known.NoonbellError) -> ProblemError:
    """Return the problem for an error of the package."""
    status = status_for(type(error))
    headers = {}
    wait = getattr(error, "retry_after_seconds", None)
    if wait is not None:
        status, headers = 429, {"Retry-After": str(wait)}
    elif status == 503:
        headers = {"Retry-After": "5"}
    field = getattr(error, "field", None) or getattr(error, "place", None)
    value = getattr(error, "value", None)
    if value is None:
        value = getattr(error, "expression", None) or getattr(error, "text", None)
    return ProblemError(
        status, _sane(str(error)), kind=_kind_of(error), field=field if isinstance(field, str) else None,
        value=value, errors=_several(error), headers=headers, facts=_facts(error),
    )  # fmt: skip


def _facts(error: known.NoonbellError) -> dict[str, Any]:
    """Of English that is not understood: where it stopped, and what would be; of a file: how many more problems."""
    if isinstance(error, known.ScheduleFileInvalidError):
        return {"more_errors": error.more} if error.more else {}
    if not isinstance(error, known.LanguageError):
        return {}
    return {
        "position": error.position,
        "end": error.end,
        "accepted": [_sane(one) for one in error.accepted],
        "suggestions": [_sane(one) for one in error.suggestions],
    }


def _several(error: known.NoonbellError) -> list[FieldError] | None:
    """Each thing that is wrong in a file of schedules."""
    found = getattr(error, "problems", None)
    if not isinstance(found, list | tuple):
        return None
    return [FieldError(field=str(getattr(one, "path", "") or "text"), reason=_sane(one.text)) for one in found]


def _kind_of(error: known.NoonbellError) -> str:
    if isinstance(error, known.ScheduleNotFoundError) and error.kind == "run":
        return "run-not-found"
    return _kind(type(error))


def _kind(error: type[Exception]) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "-", error.__name__.removesuffix("Error")).lower()


def of_validation(error: RequestValidationError, request: Request) -> ProblemError:
    """Return the problem for pydantic's errors, by field; without the sent values on routes that take secrets."""
    every = error.errors()
    found = [_field_error(one) for one in every[:_MOST_ERRORS]]
    if _SECRETIVE & {*(getattr(request.scope.get("route"), "tags", None) or ())}:
        found = [FieldError(field=one.field, reason=one.reason) for one in found]
    first = found[0] if found else FieldError(field="body", reason="cannot be understood")
    if any(one["type"] == "json_invalid" for one in error.errors()[:_MOST_ERRORS]):
        return ProblemError(400, f"{first.field} {first.reason}", kind="body-not-json", field=first.field, errors=found)
    return ProblemError(
        422, f"{first.field} {first.reason}", kind="fields-invalid", field=first.field, value=first.value, errors=found,
        facts={"more_errors": len(every) - _MOST_ERRORS} if len(every) > _MOST_ERRORS else None,
    )  # fmt: skip


def _field_error(one: Mapping[str, Any]) -> FieldError:
    where = [str(part) for part in one["loc"]]
    path = ".".join(where[1:]) if len(where) > 1 else ".".join(where)
    reason = re.sub(r"^(Input|Value error,) ", "", str(one["msg"]))
    if one["type"] == "json_invalid":
        return FieldError(field="body", reason=f"is not JSON: {one.get('ctx', {}).get('error', reason)}")
    if isinstance(one.get("input"), bytes):  # a body that was not read as JSON
        return FieldError(field="body", reason="is not sent as JSON: add the header Content-Type: application/json")
    if one["type"] == "missing":
        return FieldError(field=path, reason="is missing")
    if one["type"] == "extra_forbidden":
        return FieldError(field=path, value=presentable(one.get("input")), reason="is not known here")
    return FieldError(field=path, value=presentable(one.get("input")), reason=_sane(reason[:1].lower() + reason[1:]))


def install(app: FastAPI) -> None:
    """Install the error handlers of an app; `api/app.py` handles requests that cannot be read."""

    async def package(request: Request, error: Exception) -> Response:
        problem = of_error(cast("known.NoonbellError", error))
        if problem.status == 500:
            raise error  # an internal error: the middleware logs it and responds without details
        return answer(request, problem)

    async def raised(request: Request, error: Exception) -> Response:
        return answer(request, cast("ProblemError", error))

    async def http(request: Request, error: Exception) -> Response:
        caught = cast("HTTPException", error)
        detail = caught.detail if caught.status_code not in (404, 405) else _unrouted(request, caught.status_code)
        headers = dict(caught.headers or {})
        if caught.status_code == 405:
            headers["Allow"] = ", ".join(sorted(_methods(request)))
        return answer(request, ProblemError(caught.status_code, detail, headers=headers))

    app.add_exception_handler(known.NoonbellError, package)
    app.add_exception_handler(ProblemError, raised)
    app.add_exception_handler(HTTPException, http)


def _methods(request: Request) -> set[str]:
    """All that is possible at this address: each route knows its own method alone."""
    found: set[str] = set()
    path = request.scope["path"]
    for context in iter_route_contexts(request.app.routes):
        if context.path is not None and compile_path(context.path)[0].match(path):
            found |= set(context.methods or ())
    return found


def _unrouted(request: Request, status: int) -> str:
    if status == 405:
        return f"{request.method} is not possible here"
    return "Address not found; /api/v1/openapi.json lists the API"
