"""The settings of the service: flags over environment over `noonbell.toml` over defaults.

`load` reads them and records the source of each value (`Settings.sources`) for `noonbell config show`. An environment
variable is NOONBELL_ and the name of the setting in capitals; a list is separated by commas. The file is flat: one
`name = value` for each setting, and a table `[targets.NAME]` for each target of messages. An unknown name in the file
is an error with its line and the nearest known name; an unknown variable is ignored, because the environment is shared.

Nothing is opened or resolved here; whether a host or a store can be reached shows when it is used.
"""

from __future__ import annotations

import difflib
import ipaddress
import re
import shutil
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, cast

import msgspec

from noonbell.errors import SettingsInvalidError

if TYPE_CHECKING:
    from noonbell.actions.targets.configured import DeclaredTarget

PREFIX: Final = "NOONBELL_"
FILE_VARIABLE: Final = "NOONBELL_CONFIG"
DEFAULT_FILE: Final = Path("noonbell.toml")
LOG_FORMATS: Final = ("text", "json")
LOG_LEVELS: Final = ("debug", "info", "warning", "error")
ANY_COMMAND: Final = "any"


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a service, for its operator. ABOUT describes each."""

    store: str = "sqlite:///noonbell.db"
    host: str = "127.0.0.1"
    port: int = 8765
    lane: str = "default"
    timeline: str | None = None
    public_url: str | None = None
    log_format: Literal["text", "json"] = "text"
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    retention_days: int | None = None
    http_slots: int = 256
    http_slots_per_host: int = 16
    threads: int = 128
    egress_allow: tuple[str, ...] = ()
    egress_proxy: str | None = None
    commands: tuple[str, ...] = ()
    apprise: bool = False
    master_keys_file: str | None = None
    tasks: str | None = None
    demo: bool = False
    key_requests_per_minute: int = 6_000
    address_requests_per_minute: int = 12_000
    largest_body_bytes: int = 2_000_000
    shutdown_seconds: float = 20.0
    engine: bool = True
    watchdog_url: str | None = None
    trusted_proxies: tuple[str, ...] = ()
    targets: tuple[DeclaredTarget, ...] = ()
    sources: Mapping[str, str] = {}

    @property
    def allowed_commands(self) -> bool | tuple[str, ...]:
        """The programs for `Schedules`: all, some, or none; the demo on loopback allows `echo`."""
        if ANY_COMMAND in self.commands:
            return True
        echo = self.demo_command
        return (*self.commands, echo) if echo is not None else self.commands

    @property
    def demo_command(self) -> str | None:
        """The one harmless program that the demo allows, if this host has it."""
        return shutil.which("echo", path="/usr/bin:/bin") if self.demo and is_loopback(self.host) else None

    @property
    def is_https(self) -> bool:
        """True if the settings say that users reach the service only by https."""
        return (self.public_url or "").startswith("https://")

    @property
    def address(self) -> str:
        """The address at which users reach the service."""
        if self.public_url is not None:
            return self.public_url.rstrip("/")
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)  # noqa: S104 - compared, not bound
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"


ABOUT: Final[Mapping[str, str]] = {
    "store": "the database: sqlite:///FILE, postgresql://HOST/NAME or memory://",
    "host": "the address that the service listens on; loopback only until an admin exists",
    "port": "the port that the service listens on; 0 takes a free one",
    "lane": "which schedules this process runs",
    "timeline": "a Redis server as an index of due schedules, in front of the database: redis://HOST:6379/0",
    "public_url": "the address at which users reach the service, for links in notices",
    "log_format": "text for people, json for programs",
    "log_level": "debug, info, warning or error",
    "retention_days": "history that is older than this is pruned; without it everything is kept",
    "http_slots": "how many HTTP requests of schedules are in flight at a time",
    "http_slots_per_host": "how many of them to one host",
    "threads": "how many plain functions run at a time, each in a thread",
    "egress_allow": "addresses beside the public ones that schedules may reach, such as 10.0.0.7:8080",
    "egress_proxy": "an HTTP proxy for outgoing requests",
    "commands": "programs that schedules may start, by their full path; /usr/bin/backup:LEVEL lets them set LEVEL; "
    f'"{ANY_COMMAND}" allows all',
    "apprise": "whether channels may use apprise, whose connections are not checked",
    "master_keys_file": "the file of the master keys that encrypt secrets",
    "tasks": "a Python module with the tasks of an application, as package.module",
    "demo": "whether the service creates demo schedules",
    "key_requests_per_minute": "how many requests an API key has in a minute; 0 disables the limit",
    "address_requests_per_minute": "how many requests an address has in a minute; 0 disables the limit",
    "largest_body_bytes": "larger requests are refused",
    "shutdown_seconds": "how long a stop waits for runs; runs that have not ended by then are cancelled",
    "engine": "whether the service runs an engine; without one it is the API and the dashboard, and notifies when no "
    "engine of the lane polls",
    "watchdog_url": "an address that is requested every 20 seconds while polls complete; its receiver can alert when "
    "the requests stop",
    "trusted_proxies": "addresses of reverse proxies whose X-Forwarded-For is trusted",
    "targets": "the targets of messages, a table [targets.NAME] for each; JSON in the environment",
}
NAMES: Final = tuple(ABOUT)


# --- reading one value ------------------------------------------------------------------------------------------------


def _text(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError("must be a text that is not blank")
    return value


def _whole(least: int, most: int) -> Callable[[object], int]:
    def read(value: object) -> int:
        number = int(value) if isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,18}", value.strip()) else value
        if type(number) is not int or not least <= number <= most:
            raise ValueError(f"must be a whole number from {least} to {most}")
        return number

    return read


def _seconds(value: object) -> float:
    try:
        number = float(cast("Any", value)) if not isinstance(value, bool) else -1.0
    except (TypeError, ValueError):
        number = -1.0
    if not 0 <= number <= 86_400:
        raise ValueError("must be a number of seconds from 0 to 86400")
    return number


def _switch(value: object) -> bool:
    known = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
    found = known.get(value.strip().lower()) if isinstance(value, str) else value
    if not isinstance(found, bool):
        raise ValueError("must be true or false")  # noqa: TRY004 - for the caller it is a value that does not fit
    return found


def _list(value: object) -> tuple[str, ...]:
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, list | tuple) or not all(isinstance(part, str) for part in parts):
        raise ValueError("must be a list of texts")
    return tuple(part.strip() for part in parts if part.strip())


def _networks(value: object) -> tuple[str, ...]:
    """Return addresses and networks. A network of all addresses is refused: clients could then forge theirs."""
    found = _list(value)
    for part in found:
        try:
            network = ipaddress.ip_network(part)
        except ValueError:
            network = None
        if network is None or network.prefixlen == 0:
            raise ValueError(f"must be addresses or networks such as 10.0.0.7 or 10.0.0.0/24, and {part!r} is none")
    return found


def _one_of(*choices: str) -> Callable[[object], str]:
    def read(value: object) -> str:
        if value not in choices:
            raise ValueError(f"must be one of {', '.join(choices)}")
        return str(value)

    return read


def _web_address(value: object) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"https?://[^\s/?#@]+(/[^\s?#]*)?", value):
        raise ValueError("must be an address such as https://bell.example.org")
    return value


def _ping_address(value: object) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"https?://[^\s/?#@]+(/[^\s#]*)?", value):
        raise ValueError("must be the address of a ping, such as https://hc-ping.com/UUID")
    return value


def _timeline(value: object) -> str:
    if not isinstance(value, str) or not re.match(r"(rediss?|unix)://[^\s]", value):
        raise ValueError("must be the address of a Redis server: redis://HOST:6379/0, rediss:// or unix:///PATH")
    return value


def _module(value: object) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", value):
        raise ValueError("must be the name of a Python module, such as package.module")
    return value


def _targets(value: object) -> tuple[DeclaredTarget, ...]:
    from noonbell.actions.targets.configured import read_targets  # noqa: PLC0415 - for those alone who have any

    return read_targets(value)


_READ: Final[Mapping[str, Callable[[object], Any]]] = {
    "store": _text,
    "host": _text,
    "port": _whole(0, 65_535),
    "lane": _text,
    "timeline": _timeline,
    "public_url": _web_address,
    "log_format": _one_of(*LOG_FORMATS),
    "log_level": _one_of(*LOG_LEVELS),
    "retention_days": _whole(1, 36_500),
    "http_slots": _whole(1, 10_000),
    "http_slots_per_host": _whole(1, 10_000),
    "threads": _whole(1, 10_000),
    "egress_allow": _list,
    "egress_proxy": _text,
    "commands": _list,
    "apprise": _switch,
    "master_keys_file": _text,
    "tasks": _module,
    "demo": _switch,
    "key_requests_per_minute": _whole(0, 10_000_000),
    "address_requests_per_minute": _whole(0, 10_000_000),
    "largest_body_bytes": _whole(1_000, 1_000_000_000),
    "shutdown_seconds": _seconds,
    "engine": _switch,
    "watchdog_url": _ping_address,
    "trusted_proxies": _networks,
    "targets": _targets,
}
# Flags of `noonbell serve` that are not called as their settings are.
_FLAGS: Final = {"master_keys_file": "--key-file", "egress_allow": "--allow", "commands": "--command"}
# Settings that may hold a password inside an address.
_ADDRESSES: Final = frozenset({"store", "timeline", "egress_proxy", "watchdog_url"})


# --- reading all ------------------------------------------------------------------------------------------------------


def load(
    flags: Mapping[str, Any] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    file: Path | None = None,
) -> Settings:
    """Return the settings from these flags (None: not given), the environment and the file.

    Without `file`, the file is the one that NOONBELL_CONFIG names, or `noonbell.toml` in this directory if it exists.
    """
    environ = {} if environ is None else environ
    values: dict[str, Any] = {}
    sources = dict.fromkeys(NAMES, "default")
    for name, value, source in (*_from_file(file, environ), *_from_environment(environ), *_from_flags(flags or {})):
        try:
            values[name] = _READ[name](value)
        except SettingsInvalidError as error:  # of a field inside; where it was given is known here
            raise SettingsInvalidError(error.field, error.value, source, error.reason) from None
        except ValueError as error:
            shown = None if name in _ADDRESSES else value
            raise SettingsInvalidError(name, shown, source, str(error)) from None
        sources[name] = source
    return Settings(**values, sources=sources)


def _from_file(file: Path | None, environ: Mapping[str, str]) -> list[tuple[str, object, str]]:
    named = environ.get(FILE_VARIABLE)
    path = file if file is not None else Path(named) if named else DEFAULT_FILE
    if file is None and not named and not path.exists():
        return []
    try:
        text = path.read_text(encoding="utf-8")
        document = tomllib.loads(text)
    except OSError as error:
        raise SettingsInvalidError("config", str(path), "the file", f"cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsInvalidError("config", str(path), "the file", f"is not TOML: {error}") from None
    found = []
    for name, value in document.items():
        line = _line_of(name, text)
        if name not in _READ:
            near = difflib.get_close_matches(name, NAMES, n=1)
            right = f'did you mean "{near[0]}"?' if near else f"known are {', '.join(NAMES)}"
            raise SettingsInvalidError(name, None, f"{path}, line {line}", f"is not known; {right}")
        found.append((name, value, f"{path}, line {line}"))
    return found


def _line_of(name: str, text: str) -> int:
    """Return the line of a top-level name."""
    pattern = re.compile(rf"""\s*\[*\s*["']?{re.escape(name)}["']?\s*(=|\.|\])""")
    lines = text.splitlines()
    return next((number for number, line in enumerate(lines, start=1) if pattern.match(line)), 1)


def _from_environment(environ: Mapping[str, str]) -> list[tuple[str, object, str]]:
    found = ((name, PREFIX + name.upper()) for name in NAMES)
    return [(name, environ[variable], f"the variable {variable}") for name, variable in found if variable in environ]


def _from_flags(flags: Mapping[str, Any]) -> list[tuple[str, object, str]]:
    given = ((name, value) for name, value in flags.items() if value is not None and value != ())
    return [(name, value, f"the flag {_FLAGS.get(name, '--' + name.replace('_', '-'))}") for name, value in given]


def is_loopback(host: str) -> bool:
    """Return whether only programs on this machine can reach a listener on this host."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


# --- showing ----------------------------------------------------------------------------------------------------------


def shown(settings: Settings) -> list[tuple[str, Any, str]]:
    """Return name, value and source of every setting; passwords in addresses are masked."""
    return [(name, _shown(settings, name), settings.sources.get(name, "the program")) for name in NAMES]


def _shown(settings: Settings, name: str) -> Any:
    value = getattr(settings, name)
    if name == "targets":
        return tuple(target.shown for target in value)
    if name == "watchdog_url" and value is not None:
        return re.sub(r"(//[^/]+).*", r"\1/***", value)  # the path is a credential for sending pings
    return _masked(value) if name in _ADDRESSES else value


def _masked(address: str | None) -> str | None:
    if address is None:
        return None
    # user and password, and whatever an option of the address may hold
    return re.sub(r"(password=)[^&\s]*", r"\1***", re.sub(r"//[^/\s]*@", "//***@", address))
