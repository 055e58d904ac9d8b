"""Literal credentials in an action, where a secret should be referenced.

Pages do not show them, and the API does not show them to keys that may only read. `credential_rule` says which values
are credentials.

A form has KEPT in place of each. A value that is left alone stays as it is stored, as long as the request goes to the
same host: it does not follow a changed address. A value that only refers to secrets is not a credential,
and is shown.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import unquote, unquote_plus, urlsplit

from noonbell.actions.http.credential_rule import (
    HIDDEN,
    credentials_in_url,
    is_credential_header,
    is_credential_parameter,
    user_is_credential,
)
from noonbell.errors import ScheduleInvalidError

KEPT: Final = "••••••••"
_REFERENCE: Final = re.compile(r"\$\{secrets\.\w+\}", re.ASCII)
_SCHEME: Final = re.compile(r"(?:bearer|basic|token|apikey|key)\s+(?P<rest>\S.*)", re.ASCII | re.IGNORECASE)
_DEEPEST: Final = 50

Path = tuple[str | int, ...]


class Written(NamedTuple):
    """A credential that is written out.

    `place` is how a form names it: header:NAME, bearer, user, password, query:NAME, url:user, url:password or
    url:?NAME. The second and later of the same name have a number behind it, as in url:?NAME#2.
    """

    place: str
    label: str
    value: str
    before: str = ""  # the text in front of the credential itself, such as "Bearer "

    @property
    def suggestion(self) -> str:
        """A name for the secret that it could be."""
        name = re.sub(r"[^A-Z0-9]+", "_", self.label.upper()).strip("_")
        return {"AUTHORIZATION": "API_TOKEN", "BEARER_TOKEN": "API_TOKEN"}.get(name, name)

    @property
    def field(self) -> str:
        """Return the field of the action that has the credential, or the nearest one."""
        part = self.place.partition(":")[0]
        return {"header": "action.headers", "query": "action.query", "url": "action.url"}.get(
            part, f"action.auth.{part}"
        )


class _Found(NamedTuple):
    """A place for a credential and the value there. In a URL, `path` ends in the place's begin and end."""

    place: str
    label: str
    path: Path
    value: Any


def is_plain(text: object) -> bool:
    """Return whether a text is a credential itself, and not only the names of secrets."""
    if not isinstance(text, str):
        return text is not None
    found = _SCHEME.fullmatch(text.strip())
    rest = _REFERENCE.sub("", found["rest"] if found else text)
    return bool(rest.strip())


def written_out(action: Mapping[str, Any]) -> list[Written]:
    """The credentials of an action that are no secrets yet."""
    return [_written(one) for one in _places(action) if is_plain(one.value)]


def _written(found: _Found) -> Written:
    text = found.value if isinstance(found.value, str) else json.dumps(found.value)
    if found.path[0] == "headers" and (split := _SCHEME.fullmatch(text)):
        begin = split.start("rest")
        return Written(found.place, found.label, text[begin:], text[:begin])
    if found.path[0] == "url":  # the value of a secret is percent-encoded where it is put into a URL
        text = unquote_plus(text) if found.place.startswith("url:?") else unquote(text)
    return Written(found.place, found.label, text)


def _places(action: Mapping[str, Any]) -> Iterator[_Found]:
    """Yield all places of an action for a credential, with their content: a literal, a reference or nothing."""
    for name, value in _mapping(action, "headers").items():
        if is_credential_header(name):
            yield _Found(f"header:{name}", name, ("headers", name), value)
    auth = _mapping(action, "auth")
    if "bearer" in auth:
        yield _Found("bearer", "Bearer token", ("auth", "bearer"), auth["bearer"])
    basic = _mapping(auth, "basic")
    if "user" in basic and user_is_credential(basic.get("password")):
        yield _Found("user", "User", ("auth", "basic", "user"), basic["user"])
    elif "password" in basic:
        yield _Found("password", "Password", ("auth", "basic", "password"), basic["password"])
    yield from _in_query(_mapping(action, "query"))
    yield from _in_url(action.get("url"))


def _in_query(query: Mapping[str, Any]) -> Iterator[_Found]:
    for name, value in query.items():
        if not is_credential_parameter(name):
            continue
        if isinstance(value, list):
            for number, one in enumerate(value):
                yield _Found(_numbered(f"query:{name}", number), name, ("query", name, number), one)
        else:
            yield _Found(f"query:{name}", name, ("query", name), value)


def _in_url(url: object) -> Iterator[_Found]:
    if not isinstance(url, str):
        return
    seen: dict[str, int] = {}
    for one in credentials_in_url(url):
        place = f"url:?{one.part}" if one.is_parameter else f"url:{one.part}"
        number = seen[place] = seen.get(place, -1) + 1
        label = one.part if one.is_parameter else f"URL {one.part}"
        yield _Found(_numbered(place, number), label, ("url", one.begin, one.end), url[one.begin : one.end])


def _numbered(place: str, number: int) -> str:
    return f"{place}#{number + 1}" if number else place


def _mapping(of: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = of.get(key)
    return found if isinstance(found, Mapping) else {}


def replaced(action: Mapping[str, Any], place: str, value: Any) -> dict[str, Any]:
    """The action with another value at a place of `Written`."""
    made = dict(action)
    found = next((one for one in _places(action) if one.place == place), None)
    if found is None:
        return made
    if found.path[0] == "url":
        _, begin, end = found.path
        made["url"] = f"{action['url'][:begin]}{value}{action['url'][end:]}"
        return made
    inner: Any = made
    for key in found.path[:-1]:
        copied = inner[key] = inner[key].copy() if isinstance(inner[key], list) else dict(inner[key])
        inner = copied
    inner[found.path[-1]] = value
    return made


# --- for reading ------------------------------------------------------------------------------------------------------


def shown(action: Mapping[str, Any]) -> dict[str, Any]:
    """Return the action with its literal credentials hidden."""
    made = dict(action)
    for one in written_out(action):
        made = replaced(made, one.place, HIDDEN)
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


def shown_url(url: str) -> str:
    """The URL with its literal credentials hidden."""
    return str(shown({"url": url})["url"])


def shown_value(field: str, value: Any) -> Any:
    """The value of a field with a dotted name, as plans have it, as `shown` shows it: `action.headers.Cookie`."""
    part, *names = field.split(".", 1)
    if part != "action":
        return value
    if names:
        part, *names = names[0].split(".", 1)
        path = [part, *(names[0].split(".") if part == "auth" and names else names)]  # a header may have a dot
    else:
        path = []
    for name in reversed(path):
        value = {name: value}
    found: Any = shown(value) if isinstance(value, Mapping) else value
    for name in path:
        found = found[name]
    return found


# --- for forms --------------------------------------------------------------------------------------------------------


def veiled(action: Mapping[str, Any]) -> dict[str, Any]:
    """An action for a form: KEPT in place of each credential."""
    made = dict(action)
    for one in written_out(action):
        made = replaced(made, one.place, KEPT)
    return made


def unveiled(action: dict[str, Any], stored: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the typed action, with the stored credential wherever KEPT was left alone.

    Raises:
        ScheduleInvalidError: nothing is kept there, or it is kept for another host.
    """
    kept = {} if stored is None else {one.place: one.value for one in _places(stored) if is_plain(one.value)}
    for one in written_out(action):
        if one.before + one.value != KEPT:
            continue
        if stored is None or one.place not in kept:
            raise ScheduleInvalidError(one.field, one.label, "must be typed: no value is stored for it")
        if _origin(action) != _origin(stored):
            reason = f"is kept for {_origin(stored)} and does not go to another host: type it again"
            raise ScheduleInvalidError(one.field, one.label, f"({one.label}) {reason}")
        action = replaced(action, one.place, kept[one.place])
    _require_nothing_kept(action)
    return action


def _require_nothing_kept(action: Mapping[str, Any]) -> None:
    """Refuse KEPT where no credential stands any more, such as in front of a password that was added."""
    if KEPT in str(action.get("url", "")):
        raise ScheduleInvalidError("action.url", "(not shown)", "hides a value where none is stored: type it again")
    if _mapping(_mapping(action, "auth"), "basic").get("user") == KEPT:
        raise ScheduleInvalidError("action.auth.basic.user", "(not shown)", "must be typed: no value is stored for it")


def _origin(action: Mapping[str, Any]) -> str:
    """Return the target of a request: scheme, host and port."""
    try:
        parts = urlsplit(str(action.get("url", "")))
    except ValueError:
        return ""
    return f"{parts.scheme.lower()}://{parts.netloc.rpartition('@')[2].lower()}"
