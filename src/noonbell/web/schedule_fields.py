"""Conversion between the inputs of a schedule's form and the fields of the library.

Errors are ScheduleInvalidError, as in the library; `place_of` returns the input at which one is shown. Fields without
an input of their own are kept in `more`, as JSON, so that an edit loses nothing that the API supports.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from noonbell.api.models.schedules import ScheduleResponse
from noonbell.core.instants import moment
from noonbell.errors import ScheduleInvalidError
from noonbell.language import Understood
from noonbell.language import parse as read_text
from noonbell.web.session import Form

KINDS: Final = ("http", "command", "message", "callback")
_HTTP_INPUTS: Final = ("kind", "method", "url", "headers", "body", "auth")
_COMMAND_INPUTS: Final = ("kind", "argv", "shell", "command", "cwd", "env")
DEFAULTS: Final[dict[str, str]] = {
    "kind": "http", "method": "POST", "body_kind": "none", "auth_kind": "none", "catch_up_policy": "skip",
    "catch_up_cap": "10", "overlap": "coalesce", "retry_vs_new": "finish", "attempts": "1", "delay_seconds": "5",
    "strategy": "exponential", "dst": "literal", "jitter_seconds": "0", "enabled": "on",
}  # fmt: skip
# The input at which the error of a field is shown, by the longest matching prefix.
_PLACES: Final = {
    "spec": "when",
    "type": "when",
    "text": "when",
    "action.url": "url",
    "action.method": "method",
    "action.headers": "headers",
    "action.body": "body",
    "action.auth": "auth_kind",
    "action.argv": "argv",
    "action.command": "command",
    "action.cwd": "cwd",
    "action.env": "env",
    "action.to": "to",
    "action.type": "message_type",
    "action.name": "callback",
    "action.kind": "kind",
    "action": "more",
    "payload": "payload",
    "tags": "tags",
    "quiet_hours_policy_id": "quiet_hours_policy_id",
    "retry.attempts": "attempts",
    "retry.delay_seconds": "delay_seconds",
    "retry.max_delay_seconds": "max_delay_seconds",
    "retry.jitter": "retry_jitter",
    "retry": "attempts",
}


def place_of(field: str) -> str:
    """Return the input of a field; a field without one has its own name."""
    fits = [known for known in _PLACES if field == known or field.startswith((f"{known}.", f"{known}["))]
    return _PLACES[max(fits, key=len)] if fits else field


# --- from the form ----------------------------------------------------------------------------------------------------


def understood(form: Form, now: int) -> Understood:
    """Interpret the text of the form; a zone that it names overrides the zone input."""
    zone = form.text("timezone") or "UTC"
    return read_text(form.text("when"), now=moment(now), timezone=zone)


def fields_of(form: Form) -> dict[str, Any]:
    """Return all fields but the timing, in the form that the library takes."""
    fields: dict[str, Any] = {
        "enabled": form.ticked("enabled"),
        "catch_up_policy": form.text("catch_up_policy") or "skip",
        "catch_up_cap": _whole(form, "catch_up_cap", 10),
        "overlap": form.text("overlap") or "coalesce",
        "retry_vs_new": form.text("retry_vs_new") or "finish",
        "retry": _retry(form),
        "dst": form.text("dst") or "literal",
        "start_at": form.text("start_at") or None,
        "end_at": form.text("end_at") or None,
        "jitter_seconds": _number(form, "jitter_seconds", 0.0),
        "at_most_once": form.ticked("at_most_once"),
        "quiet_hours_policy_id": form.text("quiet_hours_policy_id") or None,
        "tags": [tag for tag in (one.strip() for one in form.text("tags").split(",")) if tag],
        "action": action_of(form),
        "payload": _json(form, "payload"),
    }
    if form.text("name"):
        fields["name"] = form.text("name")
    return fields


def action_of(form: Form) -> dict[str, Any]:
    kind = form.text("kind") or "http"
    more = _object(form, "more") if kind in ("http", "command") else {}
    if kind == "http":
        return more | _http(form)
    if kind == "command":
        return more | _command(form)
    if kind == "message":
        typed = {"type": form.text("message_type")} if form.text("message_type") else {}
        return {"kind": "message", **({"to": form.text("to")} if form.text("to") else {}), **typed}
    return {"kind": kind, "name": form.text("callback")}


def _http(form: Form) -> dict[str, Any]:
    action: dict[str, Any] = {"kind": "http", "method": form.text("method") or "GET", "url": form.text("url")}
    if headers := _lines(form, "headers", ":"):
        action["headers"] = headers
    body_kind, body = form.text("body_kind"), form.get("body", "")
    if body_kind == "json":
        action["body"] = {"json": _json(form, "body")}
    elif body_kind == "form":
        action["body"] = {"form": _json(form, "body") if body.lstrip().startswith("{") else _lines(form, "body", "=")}
    elif body_kind == "text":
        action["body"] = {"text": body.replace("\r\n", "\n")}
    auth = form.text("auth_kind")
    if auth == "bearer":
        action["auth"] = {"bearer": form.text("bearer")}
    elif auth == "basic":
        action["auth"] = {"basic": {"user": form.text("auth_user"), "password": form.get("auth_password", "")}}
    return action


def _command(form: Form) -> dict[str, Any]:
    action: dict[str, Any] = {"kind": "command"}
    if form.ticked("shell"):
        action |= {"shell": True, "command": form.get("command", "").replace("\r\n", "\n")}
    else:
        action["argv"] = [line for line in form.get("argv", "").replace("\r\n", "\n").split("\n") if line]
    if form.text("cwd"):
        action["cwd"] = form.text("cwd")
    if env := _lines(form, "env", "="):
        action["env"] = env
    return action


def _retry(form: Form) -> dict[str, Any]:
    attempts = form.text("attempts")
    retry: dict[str, Any] = {
        "attempts": None if attempts in ("unlimited", "∞") else _whole(form, "attempts", 1),
        "delay_seconds": _number(form, "delay_seconds", 5.0),
        "strategy": form.text("strategy") or "exponential",
        "jitter": _number(form, "retry_jitter", 0.0),
    }
    if form.text("max_delay_seconds"):
        retry["max_delay_seconds"] = _number(form, "max_delay_seconds", 0.0)
    return retry


def _lines(form: Form, name: str, sign: str) -> dict[str, str]:
    """Return the name and value of each line, written as in an HTTP request."""
    found: dict[str, str] = {}
    for line in form.get(name, "").replace("\r\n", "\n").split("\n"):
        if not line.strip():
            continue
        key, between, value = line.partition(sign)
        if not between or not key.strip():
            raise ScheduleInvalidError(name, line, f"must be lines such as name{sign} value")
        found[key.strip()] = value.strip() if sign == ":" else value
    return found


def _json(form: Form, name: str) -> Any:
    text = form.text(name)
    if not text:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ScheduleInvalidError(name, text[:200], f"is not JSON: {error}") from None


def _object(form: Form, name: str) -> dict[str, Any]:
    found = _json(form, name)
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise ScheduleInvalidError(name, found, 'must be a JSON object, such as {"timeout": {"total": 60}}')
    return found


def _whole(form: Form, name: str, usual: int) -> int:
    text = form.text(name)
    if not text:
        return usual
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise ScheduleInvalidError(name, text, "must be a whole number")
    return int(text)


def _number(form: Form, name: str, usual: float) -> float:
    text = form.text(name)
    if not text:
        return usual
    try:
        return float(text)
    except ValueError:
        raise ScheduleInvalidError(name, text, "must be a number") from None


# --- to the form ------------------------------------------------------------------------------------------------------


def typed_of(schedule: ScheduleResponse) -> dict[str, str]:
    """Return the inputs of a schedule."""
    action = schedule.action
    typed = dict(DEFAULTS) | {
        "name": schedule.name,
        "when": schedule.spec if schedule.type == "cron" else schedule.description or schedule.spec,
        "timezone": schedule.timezone,
        "kind": str(action.get("kind", "http")),
        "catch_up_policy": schedule.catch_up_policy,
        "catch_up_cap": str(schedule.catch_up_cap),
        "overlap": schedule.overlap,
        "retry_vs_new": schedule.retry_vs_new,
        "attempts": "unlimited" if schedule.retry.attempts is None else str(schedule.retry.attempts),
        "delay_seconds": f"{schedule.retry.delay_seconds:g}",
        "strategy": schedule.retry.strategy,
        "max_delay_seconds": ""
        if schedule.retry.max_delay_seconds is None
        else f"{schedule.retry.max_delay_seconds:g}",
        "retry_jitter": f"{schedule.retry.jitter:g}" if schedule.retry.jitter else "",
        "dst": schedule.dst,
        "start_at": "" if schedule.start_at is None else schedule.start_at.isoformat(),
        "end_at": "" if schedule.end_at is None else schedule.end_at.isoformat(),
        "jitter_seconds": f"{schedule.jitter_seconds:g}",
        "at_most_once": "on" if schedule.at_most_once else "",
        "enabled": "on" if schedule.enabled else "",
        "quiet_hours_policy_id": schedule.quiet_hours_policy_id or "",
        "tags": ", ".join(schedule.tags),
        "payload": "" if schedule.payload is None else _written(schedule.payload),
    }
    return typed | _typed_action(action)


def _typed_action(action: Mapping[str, Any]) -> dict[str, str]:
    kind = action.get("kind")
    if kind == "http":
        return _typed_http(action)
    if kind == "command":
        rest = {key: value for key, value in action.items() if key not in _COMMAND_INPUTS}
        return {
            "shell": "on" if action.get("shell") else "",
            "command": str(action.get("command", "")),
            "argv": "\n".join(action.get("argv", [])),
            "cwd": str(action.get("cwd", "")),
            "env": "\n".join(f"{name}={value}" for name, value in action.get("env", {}).items()),
            "more": _written(rest) if rest else "",
        }
    return {
        "to": str(action.get("to", "")),
        "message_type": str(action.get("type", "")),
        "callback": str(action.get("name", "")),
    }


def _typed_http(action: Mapping[str, Any]) -> dict[str, str]:
    typed = {
        "method": str(action.get("method", "GET")),
        "url": str(action.get("url", "")),
        "headers": "\n".join(f"{name}: {value}" for name, value in action.get("headers", {}).items()),
    }
    for kind, body in action.get("body", {}).items():
        plain = kind == "form" and all(isinstance(value, str) for value in body.values())
        shown = "\n".join(f"{name}={value}" for name, value in body.items()) if plain else _written(body)
        typed |= {"body_kind": kind, "body": body if kind == "text" else shown}
    auth = action.get("auth", {})
    if "bearer" in auth:
        typed |= {"auth_kind": "bearer", "bearer": auth["bearer"]}
    elif "basic" in auth:
        typed |= {"auth_kind": "basic", "auth_user": auth["basic"]["user"], "auth_password": auth["basic"]["password"]}
    rest = {key: value for key, value in action.items() if key not in _HTTP_INPUTS}
    return typed | {"more": _written(rest) if rest else ""}


def _written(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)
