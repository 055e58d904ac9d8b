"""The checks of `noonbell doctor`. Each checks one thing, changes nothing, and yields findings; none raises."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import shlex
import shutil
import sqlite3
import sys
import time
import zoneinfo
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final, Literal, NamedTuple
from zoneinfo import ZoneInfo

import apsw

from noonbell import __version__
from noonbell.actions.egress import EgressPolicy
from noonbell.actions.secrets.keys import VARIABLE, find_keys
from noonbell.cli.backend.backend_protocol import Backend, EngineUp
from noonbell.cli.cli_errors import CliError
from noonbell.cli.connection_target import KEY_VARIABLE, ConnectionTarget, shown_address
from noonbell.cli.console_tables import ago
from noonbell.config import Settings, load
from noonbell.core.presence import GRACE_SECONDS, is_stalled
from noonbell.errors import MasterKeyMissingError, NoonbellError, TimelineAwayError, TimelineError, describe_error
from noonbell.store.opening import open_store, require_ledger, sqlite_path

Level = Literal["ok", "note", "warning", "wrong"]

# Older ones may lose what was committed when a write-ahead log is reset.
_SOUND_SQLITE: Final = (3, 51, 3)
_LEAST_FREE: Final = 200 * 1024 * 1024
_LOW_FREE: Final = 2 * 1024 * 1024 * 1024
# The number of schedules whose lane is read, to bound the load of a check.
_MOST_SCHEDULES: Final = 3_000
_PAGE: Final = 1_000
_EXTRAS: Final = {
    "server": (("fastapi", "uvicorn", "aiohttp", "cryptography", "argon2", "structlog"), "serve, HTTP jobs, secrets"),
    "postgres": (("asyncpg",), "PostgreSQL"),
    "redis": (("redis",), "messages to Redis streams, no timeline"),
    "celery": (("celery",), "messages to Celery"),
    "notify": (("apprise",), "notices through apprise"),
    "uvloop": (("uvloop",), "a quicker event loop"),
}
_NEEDED_BY_STORE: Final = {"postgres": ("postgres", "postgresql")}


class Finding(NamedTuple):
    """The result of a check: its subject, its level, the text, and what to do about a problem."""

    what: str
    level: Level
    told: str
    do: str = ""


def examine(place: ConnectionTarget, key_file: Path | str | None) -> list[Finding]:
    """Return all findings, in order of relevance."""
    settings, found = _settings(place)
    checks: list[Callable[[], Iterator[Finding]]] = [
        _python,
        _sqlite,
        lambda: _extras(settings.store if place.server is None else ""),
        _zones,
        _clock,
    ]
    if place.server is not None:
        checks.append(lambda: _server(place))
    else:
        named = place.store or settings.store
        checks += [
            lambda: _store(named, place),
            lambda: _timeline(named, settings),
            lambda: _disk(named),
            lambda: _keys(Path(key_file) if key_file else None, settings),
            lambda: _egress(settings),
            lambda: _targets(settings),
        ]
    for check in checks:
        try:
            found.extend(check())
        except Exception as error:  # noqa: BLE001 - the other checks still run
            found.append(Finding("doctor", "warning", f"a check failed to run: {describe_error(error)}"))
    return found


def _settings(place: ConnectionTarget) -> tuple[Settings, list[Finding]]:
    try:
        settings = load(environ=os.environ)
        if place.store not in (None, settings.store):
            settings = load({"store": place.store}, environ=os.environ)
    except NoonbellError as error:
        return Settings(), [Finding("settings", "wrong", str(error), "Correct it; see noonbell config show")]
    sources = sorted({source for source in settings.sources.values() if source != "default"})
    return settings, [Finding("settings", "ok", f"from {', '.join(sources)}" if sources else "all by default")]


# --- this machine -----------------------------------------------------------------------------------------------------


def _python() -> Iterator[Finding]:
    text = f"Noonbell {__version__} on Python {sys.version.split()[0]}, {sys.executable}"
    yield Finding("python", "ok", text)


def _sqlite() -> Iterator[Finding]:
    ours = apsw.sqlite_lib_version()
    parts = tuple(int(part) for part in ours.split("."))
    text = f"SQLite {ours}, by apsw {apsw.apsw_version()}"
    if sqlite3.sqlite_version != ours:
        text += f"; Python's own {sqlite3.sqlite_version} is not used"
    if parts < _SOUND_SQLITE:
        yield Finding("sqlite", "wrong", text, "It may lose commits when its log is reset: pip install --upgrade apsw")
    else:
        yield Finding("sqlite", "ok", text)


def _extras(store: str) -> Iterator[Finding]:
    for extra, (modules, what_for) in _EXTRAS.items():
        missing = [name for name in modules if importlib.util.find_spec(name) is None]
        if not missing:
            yield Finding(f"extra {extra}", "ok", f"{', '.join(_versioned(name) for name in modules)}")
            continue
        needed = store.startswith(_NEEDED_BY_STORE.get(extra, ("\0",)))
        text = f"without {', '.join(missing)}: no {what_for}"
        do = f'pip install "noonbell[{extra}]"'
        yield Finding(f"extra {extra}", "wrong" if needed else "note", text, do if needed else "")


def _versioned(module: str) -> str:
    for name in (module, f"{module}-cffi"):
        try:
            return f"{module} {version(name)}"
        except PackageNotFoundError:
            continue
    return module


def _zones() -> Iterator[Finding]:
    from noonbell.schedules.zone_rules import zone_data_version  # noqa: PLC0415 - a part of the engine

    own = any(Path(folder).is_dir() for folder in zoneinfo.TZPATH)  # before the package, which is for hosts without
    data = f"{zone_data_version()}, {'as the host has it' if own else 'of the package tzdata'}"
    renew = "Bring the zone data of the host up to date" if own else "pip install --upgrade tzdata"
    try:
        summer = ZoneInfo("Europe/Kyiv").utcoffset(datetime(2026, 7, 1, 12))  # noqa: DTZ001 - a civil time is asked about
    except (KeyError, OSError, ValueError) as error:
        yield Finding("time zones", "wrong", f"Europe/Kyiv cannot be read: {error}", renew)
        return
    from noonbell.cli.typed_times import find_zone  # noqa: PLC0415 - an error of it is a finding

    try:
        here = str(find_zone(None, as_json=False))
    except CliError as error:
        yield Finding("time zones", "warning", error.message, "Set TZ to an IANA name, such as Europe/Kyiv")
        return
    text = f"{data}; the host is in {here}"
    if summer is None or summer.total_seconds() != 3 * 3600:
        yield Finding("time zones", "warning", f"{text}; the rules look odd", renew)
    elif here == "local":
        do = "Set TZ to an IANA name, or give --tz when you add schedules"
        yield Finding("time zones", "warning", f"{data}; the host's zone has no name", do)
    else:
        yield Finding("time zones", "ok", text)


def _clock() -> Iterator[Finding]:
    now = datetime.now(UTC)
    resolution = time.get_clock_info("time").resolution
    built = datetime(2026, 1, 1, tzinfo=UTC)
    text = f"{now:%Y-%m-%d %H:%M:%S} UTC"
    if now < built:
        yield Finding("clock", "wrong", f"{text}: that is in the past", "Set the clock, and let NTP keep it")
    elif resolution > 0.02:
        yield Finding("clock", "warning", f"{text}, in steps of {resolution} s", "Starts will be that late")
    else:
        synced = Path("/run/systemd/timesync/synchronized").exists()
        yield Finding("clock", "ok", text + (", kept by NTP" if synced else ""))


# --- the database -----------------------------------------------------------------------------------------------------


def _store(url: str, place: ConnectionTarget) -> Iterator[Finding]:
    shown = shown_address(url)
    if url == "memory://":
        yield Finding("database", "warning", "memory:// keeps nothing", "Use sqlite:///FILE or postgresql://HOST/NAME")
        return
    try:
        require_ledger(url)
    except NoonbellError as error:
        if error.details.get("missing"):
            text = f"{shown}: no ledger yet"
            yield Finding("database", "note", text, "noonbell serve or noonbell apply FILE --create creates one")
        else:
            yield Finding("database", "wrong", str(error), "See that it is running, and that the address is right")
        return
    except ModuleNotFoundError:
        return  # reported among the extras
    try:
        asyncio.run(_opened(url))
    except NoonbellError as error:
        yield Finding("database", "wrong", f"{shown}: {error}", "Start it once with this version, which migrates it")
        return
    yield Finding("database", "ok", f"{shown} answers, and its tables are those of this version")
    local = ConnectionTarget(url, None, place.as_json, place.now)
    try:
        lanes = local.ask(_lanes, read_only=True)
    except CliError as error:
        yield Finding("lanes", "warning", error.message)
        return
    yield from lane_findings(lanes, place)


async def _opened(url: str) -> None:
    store = open_store(url, read_only=True)
    await store.open()
    await store.close()


class Lanes(NamedTuple):
    """The live engines, and the lanes that have schedules."""

    engines: list[EngineUp]
    in_use: Mapping[str, int]  # how many schedules that are enabled are of which lane
    more: bool  # more schedules exist than were read


async def _lanes(backend: Backend) -> Lanes:
    in_use: Counter[str] = Counter()
    cursor: str | None = None
    for _ in range(0, _MOST_SCHEDULES, _PAGE):
        page = await backend.schedules.list(cursor=cursor, limit=_PAGE, enabled=True)
        in_use.update(one.lane for one in page.items if one.lane)  # what a program declares is of none
        cursor = page.next_cursor
        if cursor is None:
            break
    return Lanes(list(await backend.engines()), in_use, cursor is not None)


def lane_findings(lanes: Lanes, place: ConnectionTarget) -> Iterator[Finding]:
    engines = lanes.engines
    for lane in sorted({one.lane for one in engines}):
        share = [one for one in engines if one.lane == lane]
        age = ago(min(one.up_since for one in share), place.now).removesuffix(" ago")
        by = "an engine" if len(share) == 1 else f"{len(share)} engines"
        polled = min(one.poll_seconds_ago(place.now) for one in share)
        if is_stalled(polled, max(float(one.load.get("grace_seconds") or GRACE_SECONDS) for one in share)):
            text = f"no engine of {lane} has completed a poll for {polled:.0f} s: its schedules do not run"
            do = "See whether the process is stopped or blocked, and whether it reaches its database; restart it"
            yield Finding("lanes", "wrong", f"{text}{_hosts(share)}", do)
        else:
            yield Finding("lanes", "ok", f"{lane} has been up for {age}, by {by}{_hosts(share)}")
    for lane in sorted(lanes.in_use.keys() - {one.lane for one in engines}) if engines else ():
        number = f"{'at least ' if lanes.more else ''}{lanes.in_use[lane]}"
        text = f"no engine of {lane} is up: its schedules do not run; schedules: {number}"
        yield Finding("lanes", "wrong", text, f"noonbell worker --lane {shlex.quote(lane)} runs what is due")
    if len(data := sorted({one.zone_data for one in engines})) > 1:
        text = f"the engines use different time zone data ({', '.join(data)})"
        yield Finding("lanes", "warning", text, "Update the older time zone data")
    if len(versions := sorted({one.version for one in engines})) > 1:
        yield Finding("lanes", "note", f"the engines are of different versions ({', '.join(versions)})")
    if not engines:
        do = "noonbell serve, or noonbell worker, runs what is due"
        level: Level = "wrong" if lanes.in_use else "warning"
        yield Finding("lanes", level, "no engine is up: nothing that is due runs", do)


def _hosts(engines: list[EngineUp]) -> str:
    """Return the hosts of engines with their processes, as text; empty if the caller may not see them."""
    found: dict[str, list[str]] = {}
    for one in engines:
        if one.host is not None:
            found.setdefault(one.host, []).append(str(one.pid))
    hosts = (
        f"{host}, {'process' if len(pids) == 1 else 'processes'} {', '.join(pids)}" for host, pids in found.items()
    )
    return f" ({'; '.join(hosts)})" if found else ""


def _timeline(store: str, settings: Settings) -> Iterator[Finding]:
    if settings.timeline is None:
        return
    from noonbell.timeline.checkup import examine_timeline  # noqa: PLC0415 - where there is one

    try:
        examined = asyncio.run(examine_timeline(settings.timeline, store, settings.lane))
    except TimelineAwayError as error:
        do = "See that it is running, and that the address is right; until then the database is polled"
        yield Finding("timeline", "warning", str(error), do)
    except TimelineError as error:
        yield Finding("timeline", "wrong", str(error), "noonbell serve does not start with it")
    else:
        yield Finding("timeline", "ok" if examined.policy else "warning", examined.text, examined.do)


def _disk(url: str) -> Iterator[Finding]:
    if not url.startswith("sqlite:"):
        return
    folder = sqlite_path(url).resolve().parent
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    text = f"{free / 1024**3:.1f} GiB free where the database is, {folder}"
    if not os.access(folder, os.W_OK):
        yield Finding("disk", "wrong", f"{folder} cannot be written", "SQLite writes beside its file: allow that")
    elif free < _LEAST_FREE:
        yield Finding("disk", "wrong", text, "Make room, or prune: noonbell prune --keep 90d")
    elif free < _LOW_FREE:
        yield Finding("disk", "warning", text, "noonbell prune --keep 90d forgets old days")
    else:
        yield Finding("disk", "ok", text)


# --- keys, egress, a server -------------------------------------------------------------------------------------------


def _keys(key_file: Path | None, settings: Settings) -> Iterator[Finding]:
    named = key_file or (Path(settings.master_keys_file) if settings.master_keys_file else None)
    try:
        ring = find_keys(named, os.environ)
    except MasterKeyMissingError as error:
        yield Finding("master keys", "wrong", str(error), "noonbell keys new FILE makes one, or correct the path")
        return
    except NoonbellError as error:
        yield Finding("master keys", "wrong", str(error), "chmod 600 FILE, owned by the user that runs the service")
        return
    if ring is None:
        do = "noonbell keys new master.keys, if schedules shall use secrets or signatures"
        yield Finding("master keys", "note", "none: secrets cannot be stored, and requests are not signed", do)
        return
    where = f"in {named}" if named is not None else f"in the environment's {VARIABLE}"
    text = f"{len(ring.versions)} {where}, the newest is {ring.newest}"
    if named is not None:
        text += f", mode {named.stat().st_mode & 0o777:04o}"
    yield Finding("master keys", "ok", text)


def _egress(settings: Settings) -> Iterator[Finding]:
    try:
        EgressPolicy(allow=settings.egress_allow, proxy=settings.egress_proxy)
    except NoonbellError as error:
        yield Finding("egress", "wrong", str(error), "Correct egress_allow or egress_proxy")
        return
    beside = f"; beside: {', '.join(settings.egress_allow)}" if settings.egress_allow else ", and nothing else"
    proxy = "; through a proxy" if settings.egress_proxy else ""
    wide = [one for one in settings.egress_allow if one.endswith(("/0", "/8"))]
    text = f"schedules reach public addresses{beside}{proxy}"
    if wide:
        do = f"{', '.join(wide)} lets schedules reach nearly everything; name hosts and ports instead"
        yield Finding("egress", "warning", text, do)
    else:
        yield Finding("egress", "ok", text)
    if settings.commands:
        allowed = "all programs" if settings.allowed_commands is True else ", ".join(settings.commands)
        yield Finding("commands", "ok", f"schedules may start {allowed}")


def _targets(settings: Settings) -> Iterator[Finding]:
    if settings.targets:
        from noonbell.cli.doctor_targets import examine_targets  # noqa: PLC0415 - for those alone who have any

        yield from examine_targets(settings.targets)


def _server(place: ConnectionTarget) -> Iterator[Finding]:
    if not os.environ.get(KEY_VARIABLE):
        yield Finding("server", "wrong", f"{KEY_VARIABLE} is not set", "noonbell api-keys create NAME --scope read")
        return
    began = time.monotonic()
    try:
        lanes = place.ask(_lanes)
    except CliError as error:
        yield Finding("server", "wrong", error.message, " ".join(error.hints))
        return
    yield Finding("server", "ok", f"{place.shown} answers and accepts the key, in {time.monotonic() - began:.2f} s")
    yield from lane_findings(lanes, place)
