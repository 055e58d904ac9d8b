"""Literal credentials in an action, where a secret should be referenced.

Pages do not show them, and the API does not show them to keys that may only read.

A form has KEPT where one stands. Whoever leaves that alone keeps what is stored, as long as the request goes to the
same host: what is kept does not follow an address that somebody changes. What only refers to secrets is no credential,
and is shown.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from noonbell.errors import ScheduleInvalidError

KEPT: Final = "••••••••"
HIDDEN: Final = "***"
HEADERS: Final = frozenset({"authorization", "proxy-authorization", "cookie", "x-api-key"})
_REFERENCE: Final = re.compile(r"\$\{secrets\.\w+\}", re.ASCII)
_SCHEME: Final = re.compile(r"(?:bearer|basic|token|apikey|key)\s+(?P<rest>\S.*)", re.ASCII | re.IGNORECASE)

# What stands before the password, the password, and the rest.
_USER_IN_URL: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*://[^/?#:@]*:)([^/?#]*)(@.*)", re.DOTALL)
_DEEPEST: Final = 50


class Written(NamedTuple):
    """A credential that is written out. `place` is how a form names it: header:NAME, bearer or password."""

    place: str
    label: str
    value: str
    before: str = ""  # what stands in front of the credential itself, such as "Bearer "

    @property
    def suggestion(self) -> str:
        """A name for the secret that it could be."""
        name = re.sub(r"[^A-Z0-9]+", "_", self.label.upper()).strip("_")
        return {"AUTHORIZATION": "API_TOKEN", "BEARER_TOKEN": "API_TOKEN"}.get(name, name)


def is_plain(text: object) -> bool:
    """Whether a text is a credential itself, and not only the names of secrets."""
    if not isinstance(text, str):
        return text is not None
    found = _SCHEME.fullmatch(text.strip())
    rest = _REFERENCE.sub("", found["rest"] if found else text)
    return bool(rest.strip())


def written_out(action: Mapping[str, Any]) -> list[Written]:
    """The credentials of an action that are no secrets yet."""
    found: list[Written] = []
    for name, value in _headers(action).items():
        if name.lower() in HEADERS and is_plain(value):
            text = str(value)
            split = _SCHEME.fullmatch(text)
            begin = split.start("rest") if split else 0
            found.append(Written(f"header:{name}", name, text[begin:], text[:begin]))
    auth = _auth(action)
    if is_plain(auth.get("bearer")):
        found.append(Written("bearer", "Bearer token", str(auth["bearer"])))
    basic = auth.get("basic")
    if isinstance(basic, Mapping) and is_plain(basic.get("password")):
        found.append(Written("password", "Password", str(basic["password"])))
    return found


def _headers(action: Mapping[str, Any]) -> Mapping[str, Any]:
    headers = action.get("headers")
    return headers if isinstance(headers, Mapping) else {}


def _auth(action: Mapping[str, Any]) -> Mapping[str, Any]:
    auth = action.get("auth")
    return auth if isinstance(auth, Mapping) else {}


def replaced(action: Mapping[str, Any], place: str, value: str) -> dict[str, Any]:
    """The action with another value at a place of `Written`."""
    made = dict(action)
    if place.startswith("header:"):
        made["headers"] = {**_headers(action), place.removeprefix("header:"): value}
    elif place == "bearer":
        made["auth"] = {**_auth(action), "bearer": value}
    else:
        made["auth"] = {**_auth(action), "basic": {**_auth(action)["basic"], "password": value}}
    return made


# --- for reading ------------------------------------------------------------------------------------------------------


def shown(action: Mapping[str, Any]) -> dict[str, Any]:
    """Return the action with its literal credentials hidden."""
    made = dict(action)
    for one in written_out(action):
        made = replaced(made, one.place, HIDDEN)
    if "url" in made:
        made["url"] = _shown_url(made["url"])
    return made


def without_credentials(value: Any, depth: int = 0) -> Any:
    """Any record with every action in it as `shown` shows it, such as the detail of an audit event."""
    if depth > _DEEPEST:
        return HIDDEN
    if isinstance(value, Mapping):
        return {name: _without_credentials(name, one, depth + 1) for name, one in value.items()}
    return [without_credentials(one, depth + 1) for one in value] if isinstance(value, list) else value


def _without_credentials(name: str, value: Any, depth: int) -> Any:
    if name == "action" and isinstance(value, Mapping):
        return shown(value)
    if name == "definition" and isinstance(value, str):  # the columns of a schedule hold its action as JSON
        try:
            return json.dumps(without_credentials(json.loads(value), depth), separators=(",", ":"), ensure_ascii=False)
        except ValueError:
            return HIDDEN
    return without_credentials(value, depth)


def _shown_url(url: Any) -> Any:
    found = _USER_IN_URL.fullmatch(url) if isinstance(url, str) else None
    return url if found is None or not is_plain(found[2]) else f"{found[1]}{HIDDEN}{found[3]}"


def shown_value(field: str, value: Any) -> Any:
    """A field by its dotted name, as a plan tells it: `action.headers.Cookie`."""
    if field == "action" and isinstance(value, Mapping):
        return shown(value)
    if field == "action.url":
        return _shown_url(value)
    if field == "action.headers" and isinstance(value, Mapping):
        return shown({"headers": value})["headers"]
    if field == "action.auth" or field.startswith("action.auth."):
        return _hidden_tree(value)
    if field.startswith("action.headers.") and field.rpartition(".")[2].lower() in HEADERS and is_plain(value):
        return HIDDEN
    return value


def _hidden_tree(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: one if name == "user" else _hidden_tree(one) for name, one in value.items()}
    return HIDDEN if is_plain(value) else value


# --- for forms --------------------------------------------------------------------------------------------------------


def veiled(action: Mapping[str, Any]) -> dict[str, Any]:
    """An action for a form: KEPT in place of each credential."""
    made = dict(action)
    for one in written_out(action):
        made = replaced(made, one.place, KEPT)
    return made


def unveiled(action: dict[str, Any], stored: Mapping[str, Any] | None) -> dict[str, Any]:
    """What was typed, with what is stored wherever KEPT was left alone.

    Raises:
        ScheduleInvalidError: nothing is kept there, or it is kept for another host.
    """
    kept = {} if stored is None else {one.place: one.before + one.value for one in written_out(stored)}
    for one in written_out(action):
        if one.before + one.value != KEPT:
            continue
        field = "action.headers" if one.place.startswith("header:") else f"action.auth.{one.place}"
        if stored is None or one.place not in kept:
            raise ScheduleInvalidError(field, one.label, "is to be typed: nothing is kept for it")
        if _origin(action) != _origin(stored):
            reason = f"is kept for {_origin(stored)} and does not go to another host: type it again"
            raise ScheduleInvalidError(field, one.label, f"({one.label}) {reason}")
        action = replaced(action, one.place, kept[one.place])
    return action


def _origin(action: Mapping[str, Any]) -> str:
    """Where a request goes: scheme, host and port."""
    try:
        parts = urlsplit(str(action.get("url", "")))
    except ValueError:
        return ""
    return f"{parts.scheme.lower()}://{parts.netloc.rpartition('@')[2].lower()}"
