"""`${secrets.NAME}` in the URL, the headers and the body of a request.

`$${` is the escape of a plain `${`. Any other `${` is refused, so that a typing error is not sent anywhere. Names are
checked when a text is parsed, and that they exist before anything is filled in: a request is sent whole or not at all.
How a value is put in depends on the place:

| place | a value is put in |
| --- | --- |
| url | percent-encoded, every sign but letters, digits and `-._~`; so it cannot add a path, a parameter or a host. At the very beginning of the URL it is put in as it is, since it then holds scheme and host. In host and port it is refused otherwise: these are looked up in the open. |
| header | as it is; control characters are refused, and what Latin-1 cannot hold |
| json | escaped, within the quotes of a string; elsewhere it is refused |
| form | percent-encoded, a space as `+` |
| text | as it is; also what is encoded later, such as the values of a query or a form that is given as pairs |

Errors name the place and the secret, never a value.
"""  # noqa: E501 - a table's rows are lines

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Literal, NamedTuple
from urllib.parse import quote, quote_plus

from noonbell.actions.secrets.secret_records import NAME
from noonbell.errors import SecretReferenceError, SecretUnknownError

Kind = Literal["url", "header", "json", "form", "text"]

_MARK: Final = re.compile(r"\$\$\{|\$\{")
_REFERENCE: Final = re.compile(r"\$\{secrets\.([A-Za-z0-9_]*)\}")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_LONGEST_SHOWN: Final = 40


class Reference(NamedTuple):
    name: str
    encode: Callable[[str], str]


class Template:
    """A text with references. `place` is how errors name it, such as "the header Authorization"."""

    __slots__ = ("_parts", "place")

    def __init__(self, text: str, kind: Kind, place: str) -> None:
        self.place = place
        self._parts = _parsed(text, kind, place)

    @property
    def names(self) -> frozenset[str]:
        return frozenset(part.name for part in self._parts if isinstance(part, Reference))

    def check(self, known: Iterable[str]) -> None:
        """Raise SecretUnknownError for the first name that is not known."""
        there = frozenset(known)
        for part in self._parts:
            if isinstance(part, Reference) and part.name not in there:
                raise SecretUnknownError(part.name, self.place)

    def fill(self, values: Mapping[str, str]) -> str:
        self.check(values)
        return "".join(part if isinstance(part, str) else part.encode(values[part.name]) for part in self._parts)


def names_in(tree: Any, place: str) -> frozenset[str]:
    """The names in every text of a tree of dicts and lists, such as a JSON body that is given as a value."""
    found: list[frozenset[str]] = []

    def note(template: Template) -> str:
        found.append(template.names)
        return ""

    _walked(tree, place, note)
    return frozenset().union(*found)


def loosely_named(tree: Any) -> frozenset[str]:
    """Whatever looks like a reference in the texts of a tree, rightly placed or not."""
    if isinstance(tree, str):
        return frozenset(name for name in _REFERENCE.findall(tree.replace("$${", "")) if NAME.fullmatch(name))
    if isinstance(tree, Mapping):
        inner: Iterable[Any] = (part for pair in tree.items() for part in pair)
    elif isinstance(tree, list | tuple):
        inner = tree
    else:
        return frozenset()
    return frozenset().union(*map(loosely_named, inner))


def fill_tree(tree: Any, place: str, values: Mapping[str, str]) -> Any:
    """Return the tree with values in place of references, also in keys. The encoder escapes what needs to be."""
    return _walked(tree, place, lambda template: template.fill(values))


def _walked(tree: Any, place: str, visit: Callable[[Template], str]) -> Any:
    if isinstance(tree, str):
        return visit(Template(tree, "text", place))
    if isinstance(tree, Mapping):
        filled: dict[Any, Any] = {}
        for key, item in tree.items():
            inner = f"{place}.{key}" if isinstance(key, str) and "${" not in key else place
            filled[_walked(key, f"a key of {place}", visit)] = _walked(item, inner, visit)
        return filled
    if isinstance(tree, list | tuple):
        return [_walked(item, f"{place}[{at}]", visit) for at, item in enumerate(tree)]
    return tree


def _parsed(text: str, kind: Kind, place: str) -> list[str | Reference]:
    parts: list[str | Reference] = []
    at = 0
    while mark := _MARK.search(text, at):
        parts.append(text[at : mark.start()])
        if mark[0] == "$${":
            parts.append("${")
            at = mark.end()
            continue
        found = _REFERENCE.match(text, mark.start())
        if found is None:
            shown = text[mark.start() : mark.start() + _LONGEST_SHOWN]
            reason = f'"{shown}" is not ${{secrets.NAME}}; for a plain ${{ write $${{'
            raise SecretReferenceError(place, reason)
        name = found[1]
        if not NAME.fullmatch(name):
            reason = f'"{name[:_LONGEST_SHOWN]}" is not a name of a secret: letters, digits and "_", not a digit first'
            raise SecretReferenceError(place, reason)
        parts.append(Reference(name, _encoder(kind, text, found.start(), name, place)))
        at = found.end()
    parts.append(text[at:])
    return [part for part in parts if part != ""]


def _encoder(kind: Kind, text: str, at: int, name: str, place: str) -> Callable[[str], str]:
    if kind == "url":
        return _url_encoder(text, at, name, place)
    if kind == "header":
        return lambda value: _header_value(value, name, place)
    if kind == "form":
        return quote_plus
    if kind == "json":
        if not _within_json_string(text, at):
            raise SecretReferenceError(place, f"${{secrets.{name}}} is outside of a JSON string; put it in quotes")
        return lambda value: json.dumps(value)[1:-1]
    return lambda value: value


def _url_encoder(text: str, at: int, name: str, place: str) -> Callable[[str], str]:
    if at == 0:
        return lambda value: _url_start(value, name, place)
    scheme_end = text.find("://")
    if text.startswith("${"):
        # scheme and host come from the secret in front, up to the first sign that ends a host
        begin = text.index("}") + 1
    elif scheme_end >= 0:
        begin = scheme_end + 3
    else:
        begin = len(text)
    ends = [found for found in (text.find(sign, begin) for sign in "/?#") if found >= 0]
    host_end = min(ends, default=len(text))
    user_end = text.rfind("@", begin, host_end)
    if at < host_end and at > user_end:
        raise SecretReferenceError(
            place,
            f"${{secrets.{name}}} is in the scheme, host or port, which cannot be kept secret; put it elsewhere",
        )
    return lambda value: quote(value, safe="")


def _url_start(value: str, name: str, place: str) -> str:
    if not value.lower().startswith(("http://", "https://")):
        raise SecretReferenceError(
            place, f"${{secrets.{name}}} begins the URL, so its value has to begin with http:// or https://"
        )
    if _CONTROL.search(value) or " " in value:
        raise SecretReferenceError(place, f"the value of ${{secrets.{name}}} holds a space or a control character")
    return value


def _header_value(value: str, name: str, place: str) -> str:
    if _CONTROL.search(value):
        raise SecretReferenceError(
            place, f"the value of ${{secrets.{name}}} holds a control character, such as the end of a line"
        )
    # not by trying to encode it: the error of the codec would hold the value
    if any(ord(char) > 255 for char in value):
        raise SecretReferenceError(
            place, f"the value of ${{secrets.{name}}} holds a character that a header cannot carry"
        )
    return value


def _within_json_string(text: str, at: int) -> bool:
    inside, skip = False, False
    for char in text[:at]:
        if skip:
            skip = False
        elif inside and char == "\\":
            skip = True
        elif char == '"':
            inside = not inside
    # a backslash right before would take the first sign of the value into its escape
    return inside and not skip
