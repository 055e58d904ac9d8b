"""Tables of plain values as TOML text: texts, numbers, booleans and lists of texts, one pair a line."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")


def table(path: str, values: Mapping[str, Any]) -> str:
    """A table with its header; a path of bare keys, empty for the top of the file."""
    pairs = [f"{_key(key)} = {_value(value)}" for key, value in values.items()]
    return "\n".join([f"[{path}]", *pairs] if path else pairs)


def comment(text: str) -> str:
    """Return a text in the form of a comment: on one line, without characters that TOML forbids."""
    return "".join(char if char.isprintable() or char == "\t" else f"\\x{ord(char):02x}" for char in text)


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else _text(key)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_value(one) for one in value)}]"
    return _text(value) if isinstance(value, str) else str(value)


def _text(value: str) -> str:
    # JSON's escapes are TOML's too; the one control character that JSON does not escape is not allowed there
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
