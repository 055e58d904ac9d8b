"""Master keys: a ring of versions, read from a file or from an environment variable.

The text has one key a line, newest first, as `VERSION:KEY`: a whole number and 32 bytes in URL-safe base64. In a
variable commas may replace the line ends. Empty lines and lines that begin with # do not count. New records are
sealed under the newest key; the older ones open what was sealed before.

A key file is made with mode 0600 and never overwritten; one that others may read, or that belongs to another user, is
refused. Keys are never part of a message, a `repr` or a pickle. Nothing here protects the memory of the process.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
import secrets
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NoReturn

from noonbell.errors import MasterKeyError, MasterKeyMissingError

VARIABLE: Final = "NOONBELL_MASTER_KEYS"
FILE_VARIABLE: Final = "NOONBELL_MASTER_KEYS_FILE"
_KEY_BYTES: Final = 32
_LONGEST_TEXT: Final = 65_536
_LATEST_VERSION: Final = 2**31 - 1
_LINE: Final = re.compile(r"([1-9][0-9]{0,9}):([A-Za-z0-9_-]{43}=?)")
_HEADING: Final = (
    "# Master keys of Noonbell, newest first. With this file every secret that was sealed with it can be read;\n"
    "# without it they are lost. Keep a copy apart from the database, and never in the same backup.\n"
)


class KeyRing:
    """Master keys by version. The newest seals, all open."""

    __slots__ = ("_keys", "newest")

    newest: int

    def __init__(self, keys: Mapping[int, bytes]) -> None:
        if not keys:
            raise MasterKeyMissingError("the key ring", "no key found")
        for version, key in keys.items():
            if not 1 <= version <= _LATEST_VERSION:
                raise MasterKeyError("the key ring", f"version {version} must be 1 to {_LATEST_VERSION}")
            if len(key) != _KEY_BYTES:
                raise MasterKeyError("the key ring", f"key {version} has {len(key)} bytes, not {_KEY_BYTES}")
        if len(set(keys.values())) != len(keys):
            raise MasterKeyError("the key ring", "two versions hold the same key")
        self._keys = dict(sorted(keys.items(), reverse=True))
        self.newest = next(iter(self._keys))

    @property
    def versions(self) -> tuple[int, ...]:
        """Newest first."""
        return tuple(self._keys)

    def key(self, version: int) -> bytes | None:
        return self._keys.get(version)

    def with_new_key(self) -> KeyRing:
        """The same ring and a fresh key, one version above the newest."""
        return KeyRing({**self._keys, self.newest + 1: secrets.token_bytes(_KEY_BYTES)})

    def __repr__(self) -> str:
        return f"KeyRing(versions={list(self._keys)})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a key ring is not pickled or copied: its keys would travel with it")


def new_ring() -> KeyRing:
    return KeyRing({1: secrets.token_bytes(_KEY_BYTES)})


def parse_keys(text: str, source: str) -> KeyRing:
    """Read the text of a key file or a variable. Errors name the line, never its text."""
    keys: dict[int, bytes] = {}
    previous: int | None = None
    for number, entry in _entries(text):
        found = _LINE.fullmatch(entry)
        if found is None:
            raise MasterKeyError(source, f"line {number} is not VERSION:KEY, the key being 32 bytes in URL-safe base64")
        version = int(found[1])
        if previous is not None and version >= previous:
            raise MasterKeyError(source, f"line {number}: version {version} must be below {previous}, newest first")
        previous = version
        keys[version] = _decoded(found[2], source, number)
    if not keys:
        raise MasterKeyMissingError(source, "no key found; make one with: noonbell keys new FILE")
    try:
        return KeyRing(keys)
    except MasterKeyError as error:
        raise MasterKeyError(source, error.reason) from None


def _entries(text: str) -> Iterator[tuple[int, str]]:
    """Return the lines of the text with their numbers, without comments."""
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.lstrip().startswith("#"):
            yield from ((number, entry.strip()) for entry in line.split(",") if entry.strip())


def keys_from_environment(environ: Mapping[str, str], variable: str = VARIABLE) -> KeyRing | None:
    """The ring in the variable, or None where it is not set. Set but empty is an error."""
    text = environ.get(variable)
    return None if text is None else parse_keys(text, f"the variable {variable}")


def find_keys(path: Path | None, environ: Mapping[str, str]) -> KeyRing | None:
    """The ring in the file that is named, or in the file or the lines that the environment names; None: nowhere."""
    if path is not None:
        return read_keys(path)
    named = environ.get(FILE_VARIABLE)
    if named is None:
        return keys_from_environment(environ)
    if VARIABLE in environ:
        raise MasterKeyError(f"the variables {VARIABLE} and {FILE_VARIABLE}", "both are set; right is one of them")
    if not named:
        raise MasterKeyError(f"the variable {FILE_VARIABLE}", "is empty; right is the path of a key file")
    return read_keys(Path(named))


def read_keys(path: Path) -> KeyRing:
    """Read a key file. It has to be a regular file of this user or of root that no other user may open."""
    source = str(path)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        raise MasterKeyMissingError(source, "file not found; make it with: noonbell keys new FILE") from None
    except OSError as error:
        raise MasterKeyError(source, f"cannot be opened: {error.strerror}") from None
    try:
        # asked of the open file, so that it cannot be replaced in between
        _check_private(os.fstat(descriptor), source)
        data = _all_of(descriptor)
    finally:
        os.close(descriptor)
    if len(data) > _LONGEST_TEXT:
        raise MasterKeyError(source, f"is longer than {_LONGEST_TEXT} bytes; this is not a key file")
    try:
        return parse_keys(data.decode("ascii"), source)
    except UnicodeDecodeError:
        raise MasterKeyError(source, "is not ASCII text; this is not a key file") from None


def _check_private(facts: os.stat_result, source: str) -> None:
    mode = stat.S_IMODE(facts.st_mode)
    if not stat.S_ISREG(facts.st_mode):
        raise MasterKeyError(source, "is not a regular file")
    if mode & 0o077:
        raise MasterKeyError(source, f"has mode {mode:04o}, so that others may open it; right is: chmod 600")
    if facts.st_uid not in {0, os.geteuid()}:
        raise MasterKeyError(source, f"belongs to user {facts.st_uid}, neither to this one nor to root")


def _all_of(descriptor: int) -> bytes:
    """Return the content of a file, up to one byte more than is allowed."""
    data = b""
    while len(data) <= _LONGEST_TEXT and (piece := os.read(descriptor, _LONGEST_TEXT + 1 - len(data))):
        data += piece
    return data


def create_key_file(path: Path) -> KeyRing:
    """Make a key file with one fresh key. A file that is there is never touched."""
    ring = new_ring()
    try:
        _write_new(path, ring)
    except FileExistsError:
        raise MasterKeyError(
            str(path), "exists, and is not overwritten; for one more key in it: noonbell keys add FILE"
        ) from None
    except OSError as error:
        raise MasterKeyError(str(path), f"cannot be written: {error.strerror}") from None
    return ring


def add_key(path: Path) -> KeyRing:
    """Put a fresh key on top of a key file: the old file or the whole new one is there, whenever this is cut short."""
    ring = read_keys(path).with_new_key()
    # A link keeps its target. The fixed name is also the lock: two processes that add at once do not lose a key.
    target = path.resolve()
    draft = target.with_name(target.name + ".new")
    try:
        _write_new(draft, ring)
        draft.replace(target)
        _sync_folder(target.parent)
    except FileExistsError:
        raise MasterKeyError(
            str(path), f"{draft.name} exists: another process is adding a key, or was cut short; remove it in that case"
        ) from None
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise MasterKeyError(str(path), f"cannot be written: {error.strerror}") from None
    return ring


def _write_new(path: Path, ring: KeyRing) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        # the umask may have taken bits away, never added any
        os.fchmod(file.fileno(), 0o600)
        file.write(_HEADING + _text(ring))
        file.flush()
        os.fsync(file.fileno())
    _sync_folder(path.parent)


def _text(ring: KeyRing) -> str:
    lines = []
    for version in ring.versions:
        key = ring.key(version)
        if key is not None:
            lines.append(f"{version}:{base64.urlsafe_b64encode(key).decode().rstrip('=')}\n")
    return "".join(lines)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _decoded(text: str, source: str, number: int) -> bytes:
    try:
        key = base64.b64decode(text.rstrip("=") + "=", altchars=b"-_", validate=True)
    except binascii.Error:
        raise MasterKeyError(source, f"line {number}: the key is not URL-safe base64") from None
    if len(key) != _KEY_BYTES or base64.urlsafe_b64encode(key).decode().rstrip("=") != text.rstrip("="):
        raise MasterKeyError(source, f"line {number}: the key is cut or mistyped")
    return key
