"""Every key and value of a TOML document is found where it stands."""

from __future__ import annotations

import json
import string
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from noonbell.planning.places import Document, Path
from noonbell.planning.toml_document import read_toml


def char_at(text: str, document: Document, path: Path, *, key: bool = False) -> str:
    line, column = (document.keys if key else document.places)[path]
    return text.split("\n")[line - 1][column - 1 :]


def test_all_the_forms_of_the_language() -> None:
    text = '''# a comment with [brackets] = "and signs"
top = 1 # more
dotted . "quoted key".'lit' = """one " quote
and # no comment \\""" still"""
[ table . sub ]   # spaces
list = [ 1, [2,
  # between
  3, ], {a = "x,]}", b.c = 2026-11-01 09:30:00}, ]
raw = 'C:\\'
multi = \'\'\'it's [fine]\'\'\'
[[table.many]]
x = 1
[[table.many]]
x = 2
[table.many.inner]
y = true
'''
    document = read_toml(text, "f")
    assert not document.problems
    assert char_at(text, document, ("top",), key=True).startswith("top = 1")
    assert char_at(text, document, ("dotted", "quoted key"), key=True).startswith('"quoted key"')
    assert char_at(text, document, ("dotted", "quoted key", "lit")).startswith('"""one')
    assert char_at(text, document, ("table", "sub", "list", 1, 1)).startswith("3, ]")
    assert char_at(text, document, ("table", "sub", "list", 2, "a")).startswith('"x,]}"')
    assert char_at(text, document, ("table", "sub", "list", 2, "b", "c")).startswith("2026-11-01 09:30:00}")
    assert char_at(text, document, ("table", "sub", "multi")).startswith("'''it's")
    assert char_at(text, document, ("table", "many", 0, "x")) == "1"
    assert char_at(text, document, ("table", "many", 1, "x")) == "2"
    assert char_at(text, document, ("table", "many", 1, "inner", "y")) == "true"
    assert document.values["table"]["many"][1] == {"x": 2, "inner": {"y": True}}


def test_windows_line_ends_do_not_shift_anything() -> None:
    document = read_toml('a = 1\r\nb = """x\r\ny"""\r\nc = 2\r\n', "f")
    assert document.keys["c",] == (4, 1)
    assert document.places["c",] == (4, 5)


KEYS = st.text(string.ascii_letters + string.digits + "-_ .ü\"'#=[]", min_size=1, max_size=6)
SCALARS = st.one_of(
    st.integers(-(10**6), 10**6),
    st.booleans(),
    st.text(string.printable.replace("\x0b", "").replace("\x0c", "") + "ü\\\"'", max_size=12),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(KEYS, inner, max_size=4)),
    max_leaves=12,
)
BLANKS = st.sampled_from(["", " ", "\t ", "  "])


def written(value: Any, path: Path, draw: Any, marks: dict[str, Path]) -> str:
    """TOML of a value in which every scalar text is marked with its path."""
    gap = str(draw(BLANKS))
    if isinstance(value, dict):
        pairs = [
            f"{json.dumps(key, ensure_ascii=False)}{gap}={draw(BLANKS)}{written(inner, (*path, key), draw, marks)}"
            for key, inner in value.items()
        ]
        return "{" + gap + f"{gap},{gap}".join(pairs) + gap + "}"
    if isinstance(value, list):
        comma = str(draw(st.sampled_from([",", ", ", ",\n # , ] comment\n "])))
        return "[" + gap + comma.join(written(one, (*path, n), draw, marks) for n, one in enumerate(value)) + gap + "]"
    if isinstance(value, str):
        mark = f"mark{len(marks)}:"
        marks[mark] = path
        if "'" not in value and value.isprintable() and draw(st.booleans()):
            return f"'{mark}{value}'"
        return json.dumps(mark + value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return json.dumps(value)


@given(st.data())
def test_marks_are_found_where_they_were_written(data: st.DataObject) -> None:
    top = data.draw(st.dictionaries(KEYS, VALUES, max_size=5))
    marks: dict[str, Path] = {}
    lines: list[str] = []
    for key, value in top.items():
        name = json.dumps(key, ensure_ascii=False)
        if isinstance(value, dict) and data.draw(st.booleans()):
            continue
        lines.append(f"{name} = {written(value, (key,), data.draw, marks)}")
        if data.draw(st.booleans()):
            lines.append('# "a comment" = [')
    text = "\n".join(lines)
    document = read_toml(text, "f")
    assert not document.problems
    for mark, path in marks.items():
        assert char_at(text, document, path)[1:].startswith(mark)
