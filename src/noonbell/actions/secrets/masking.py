"""Takes secrets out of whatever is about to be written down.

A `Masker` is made from the values that a request may hold and replaces each, in every form that `forms` knows, by three
stars: in text, bytes, nested structures and errors, whole or as a stream. A few values at a time are looked for in one
pass of one regular expression, which knows how each form begins; where it finds something, the whole forms are held
against that place. `nested` finds what is behind several layers of escapes. Where finds overlap, all of what they cover
goes.

Mask first, then cut: half a secret at the end of a cut text is not a form of it. Where the text came cut, say so
(`cut=True`), and an end that may be the beginning of a secret goes as well.

What is not found: a value that was compressed, encrypted, hashed, turned round, changed in case, or split into parts
that are written apart; `docs/secrets.md` has the whole list.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, AnyStr, Final, Generic, NoReturn

import msgspec

from noonbell.actions.secrets.escaped_forms import beginnings, patterns, url_parts
from noonbell.actions.secrets.finding import Finder, FormIndex, first_byte, first_char
from noonbell.actions.secrets.nested import NestedForms
from noonbell.actions.secrets.secret_records import SHORTEST_VALUE, check_value

MASK: Final = "***"
_DEEPEST: Final = 100
_CHUNK: Final = 8
_LONGEST_ERROR: Final = 2000
# From how many signs on the end of a cut text counts as the beginning of a secret.
_SHORTEST_BEGINNING: Final = 3


class _Chunk:
    """A few values that are looked for together. Compiling takes longer for each value the more there are."""

    def __init__(self, values: frozenset[str]) -> None:
        self.values = values
        self._forms = FormIndex(pattern for value in sorted(values) for pattern in patterns(value))
        self.reach = self._forms.reach

    @cached_property
    def in_text(self) -> Finder[str]:
        return Finder(self._forms, re.compile, first_char)

    @cached_property
    def in_bytes(self) -> Finder[bytes]:
        return Finder(self._forms, lambda source: re.compile(source.encode()), first_byte)


class Masker:
    """Masks a set of secrets. It is made once per set and used often; it never shows what it masks.

    `like` is one for much the same values: what was compiled for it is used again.
    """

    _chunks: list[_Chunk]

    def __init__(self, values: Iterable[str], *, like: Masker | None = None) -> None:
        known: set[str] = set()
        for value in values:
            check_value(value)
            bare = value.strip()
            known.add(bare if len(bare) >= SHORTEST_VALUE else value)
            known |= url_parts(bare)
        self._values = frozenset(known)
        kept = [] if like is None else like._chunks  # noqa: SLF001 - another of this class
        self._chunks = [chunk for chunk in kept if len(chunk.values) == _CHUNK and chunk.values <= known]
        rest = sorted(known.difference(*(chunk.values for chunk in self._chunks)))
        self._chunks += (_Chunk(frozenset(rest[at : at + _CHUNK])) for at in range(0, len(rest), _CHUNK))
        self._nested = NestedForms(known)
        # one more for the sign at the edge of a base64 form
        self.reach = max((self._nested.reach, *(chunk.reach + 1 for chunk in self._chunks)))

    def __bool__(self) -> bool:
        return bool(self._values)

    def __repr__(self) -> str:
        return f"Masker({len(self._values)} secrets)"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a masker is not pickled or copied: the secrets would travel with it")

    @property
    def _in_text(self) -> list[Finder[str]]:
        return [chunk.in_text for chunk in self._chunks]

    @property
    def _in_bytes(self) -> list[Finder[bytes]]:
        return [chunk.in_bytes for chunk in self._chunks]

    @cached_property
    def _beginnings(self) -> frozenset[str]:
        return frozenset(form for value in self._values for form in beginnings(value))

    def text(self, text: str, *, cut: bool = False) -> str:
        """The text without secrets. `cut`: it goes on, and the rest is not here."""
        return self.text_stream().finish(text, cut=cut) if self._values else text

    def data(self, data: bytes, *, cut: bool = False) -> bytes:
        return self.stream().finish(data, cut=cut) if self._values else data

    def after(self, data: bytes, begin: int) -> bytes:
        """Return what follows the first `begin` bytes, masked. Of data cut in front these are at least `reach`."""
        out: list[bytes] = []
        done = begin
        for start, end in _spans(self._in_bytes, self._nested, data):
            if end <= done:
                continue
            if start >= done or not out:
                out += (data[done:start], MASK.encode())
            done = end
        return b"".join([*out, data[done:]])

    def text_stream(self) -> MaskingStream[str]:
        return MaskingStream(self._in_text, self._nested, self.reach, MASK, lambda: self._beginnings)

    def stream(self) -> MaskingStream[bytes]:
        return MaskingStream(
            self._in_bytes,
            self._nested,
            self.reach,
            MASK.encode(),
            lambda: frozenset(form.encode() for form in self._beginnings),
        )

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Return the places of secrets in a text, in order; they may overlap."""
        return _spans(self._in_text, self._nested, text)

    def value(self, value: Any) -> Any:
        """Any value as it may be kept: same shape, secrets masked in keys, texts, bytes and numbers.

        Structs and dataclasses become dicts, sets become lists. Any other object stays as it is unless its text shows
        a secret; then that text takes its place, masked.
        """
        return self._masked(value, 0) if self._values else value

    def error(self, error: BaseException) -> str:
        """An error as type and message, with its notes and what caused it; masked, and only then cut."""
        shown: list[str] = []
        seen: set[int] = set()
        current: BaseException | None = error
        while current is not None and id(current) not in seen and len(shown) < 10:
            seen.add(id(current))
            shown.append(self.text(_message(current)))
            current = current.__cause__ or (None if current.__suppress_context__ else current.__context__)
        whole = "; caused by ".join(shown)
        return whole if len(whole) <= _LONGEST_ERROR else whole[:_LONGEST_ERROR] + "…"

    def _masked(self, value: Any, depth: int) -> Any:
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, bytes | bytearray | memoryview):
            return self.data(bytes(value))
        if depth >= _DEEPEST:
            return MASK
        if isinstance(value, Mapping):
            return {self._masked_key(key): self._masked(item, depth + 1) for key, item in value.items()}
        if isinstance(value, tuple):
            return tuple(self._masked(item, depth + 1) for item in value)
        if isinstance(value, list | set | frozenset):
            return [self._masked(item, depth + 1) for item in value]
        if isinstance(value, msgspec.Struct):
            return self._masked(msgspec.structs.asdict(value), depth + 1)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
            return self._masked(fields, depth + 1)
        if isinstance(value, BaseException):
            return self.error(value)
        return self._opaque(value)

    def _masked_key(self, key: Any) -> Any:
        if isinstance(key, str):
            return self.text(key)
        return self.data(key) if isinstance(key, bytes) else self._opaque(key)

    def _opaque(self, value: Any) -> Any:
        for shown in (_shown(str, value), _shown(repr, value)):
            if (masked := self.text(shown)) != shown:
                return masked
        return value


NOTHING: Final = Masker(())


class MaskingStream(Generic[AnyStr]):
    """Masks what comes in pieces, as if it had come whole. It keeps back what may still become part of a secret."""

    def __init__(
        self,
        finders: Sequence[Finder[AnyStr]],
        nested: NestedForms,
        reach: int,
        mask: AnyStr,
        beginnings_: Callable[[], frozenset[AnyStr]],
    ) -> None:
        self._finders: Sequence[Finder[AnyStr]] = finders
        self._nested = nested
        self._mask: AnyStr = mask
        self._reach = reach
        self._beginnings: Callable[[], frozenset[AnyStr]] = beginnings_
        self._kept: AnyStr = mask[:0]
        self._covered = 0  # so much of what is kept lies under a mask that has been handed out

    def feed(self, piece: AnyStr) -> AnyStr:
        """Return what can be handed out now, masked."""
        text = self._kept + piece
        return self._advance(text, max(0, len(text) - self._reach))

    def finish(self, piece: AnyStr | None = None, *, cut: bool = False) -> AnyStr:
        """The rest. `cut`: what was fed is not all, so its end may be the beginning of a secret."""
        text = self._kept if piece is None else self._kept + piece
        end = self._start_of_beginning(text) if cut else len(text)
        # over the whole text: a secret that is there may reach into what looks like the beginning of another
        handed = self._advance(text, end)
        hidden = end < len(text) and self._covered == 0
        self._kept, self._covered = self._mask[:0], 0
        return handed + self._mask if hidden else handed

    def _advance(self, text: AnyStr, until: int) -> AnyStr:
        """Hand out up to `until`. A find that begins before it is complete: all that may belong to it is there."""
        out: list[AnyStr] = []
        done = self._covered
        for begin, end in _spans(self._finders, self._nested, text):
            if begin >= until:
                break
            if begin >= done:
                out += (text[done:begin], self._mask)
            done = max(done, end)
        if done < until:
            out.append(text[done:until])
        self._kept, self._covered = text[until:], max(0, done - until)
        return self._mask[:0].join(out)

    def _start_of_beginning(self, text: AnyStr) -> int:
        longest = 0
        for form in self._beginnings():
            for size in range(min(len(form) - 1, len(text)), max(longest, _SHORTEST_BEGINNING - 1), -1):
                if text.endswith(form[:size]):
                    longest = size
                    break
        return min(len(text) - longest, self._nested.start_of_beginning(text))


def mask_by_all(text: str, maskers: Sequence[Masker]) -> str:
    """The text without the secrets of any of the maskers, as if one knew them all: a find of one hides none of another.

    For many maskers that must not become one, such as those of many teams.
    """
    if len(maskers) == 1:
        return maskers[0].text(text)
    spans = sorted(span for masker in maskers for span in masker.spans(text))
    if not spans:
        return text
    out: list[str] = []
    done = 0
    for begin, end in spans:
        if begin >= done:
            out += (text[done:begin], MASK)
        done = max(done, end)
    return "".join([*out, text[done:]])


def _spans(finders: Iterable[Finder[AnyStr]], nested: NestedForms, text: AnyStr) -> list[tuple[int, int]]:
    """Return the places of all finds, in order; they may overlap."""
    spans = nested.spans(text)
    for finder in finders:
        at = 0
        while found := finder.search(text, at):
            begin, end = found.span()
            if found.lastindex is not None and finder.is_edge(text, begin - 1):
                begin -= 1
            spans.append((begin, end))
            at = found.start() + 1
    spans.sort()
    return spans


def _message(error: BaseException) -> str:
    try:
        message = "\n".join([str(error), *getattr(error, "__notes__", [])])
    except Exception as second:  # noqa: BLE001 - a broken message must not hide the error it belongs to
        message = f"(its message could not be made: {type(second).__name__})"
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def _shown(show: Callable[[Any], str], value: Any) -> str:
    try:
        return show(value)
    except Exception:  # noqa: BLE001 - what cannot be shown shows no secret, and must not end the masking
        return ""
