"""Attacks on a service that are a matter of one answer: each returns what was sent, refused, and got through.

`tests/faults/attacks.py` runs them. `missed` names what got through; where it is empty, nothing did.
"""

from __future__ import annotations

import html
import json
import re
import stat
import subprocess
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

import httpx2

from tests.faults.attackers import API
from tests.faults.echo import FORMS, Echo, HostileProxy
from tests.patience import PATIENCE_SECONDS
from tests.ports import free_port
from tests.service.conftest import StreamInFlight, command, environment, served

_PASSWORD: Final = "correct horse battery staple"  # noqa: S105 - of a service that lives for seconds
_PIECE: Final = 30
_BOUND: Final = {"secure", "httponly", "samesite=strict", "path=/"}
# As a cloud gives it to a program: JSON, and longer than 256 characters.
_ACCOUNT: Final = json.dumps(
    {"type": "service_account", "private_key": "\n".join(f"{n:02}kF3x/9+Qm" * 6 for n in range(5))}
)
_TOKEN: Final = "Sk1v9Zq7Xy3Lm5Np8Rs2Tw4"  # noqa: S105 - as above
_ESCAPED: Final = re.compile(
    r"\\+(?:(?P<octal>[0-3][0-7]{2})|U(?P<long>000[0-9a-fA-F]{5})"
    r"|u\{(?P<braces>[0-9a-fA-F]{1,5})\}|u(?P<short>[0-9a-fA-F]{4}))"
)
_ENVIRONMENTS: Final = (
    {"BASH_ENV": "/evil"}, {"BASH_FUNC_echo%%": "() { id; }"}, {"ENV": "/evil"}, {"GCONV_PATH": "/evil"},
    {"GLIBC_TUNABLES": "x=y"}, {"Ld_Preload": "/evil.so"}, {"LD_PRELOAD": "/evil.so"}, {"PATH": "/evil"},
    {"IFS": "/"}, {"PYTHONSTARTUP": "/evil.py"},
)  # fmt: skip


class Scene(NamedTuple):
    """Where an attempt is made: the options of `serve`, the keys, and a target."""

    folder: Path
    usual: tuple[str, ...]
    keys: Mapping[str, str]
    echo: Echo

    @property
    def store(self) -> str:
        return self.usual[1]


def instant(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def command_environments(scene: Scene) -> dict[str, Any]:
    """The environment of an allowed command does not start another program."""
    script = scene.folder / "allowed.sh"
    script.write_text("#!/bin/bash\necho ran\n", encoding="ascii")
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    through: list[str] = []
    with served(scene.folder, *scene.usual, "--command", str(script)) as service, _client(service, scene) as client:
        for number, env in enumerate(({}, *_ENVIRONMENTS)):
            action = {"kind": "command", "argv": [str(script)], "env": env}
            body = {"name": f"env{number}", "type": "interval", "spec": "1h", "action": action}
            if client.post(f"{API}/schedules", json=body).status_code != (422 if env else 201):
                through.append(next(iter(env), "the command itself is refused"))
        service.stop()
    return _result(len(_ENVIRONMENTS), through)


def echoed_secrets(scene: Scene) -> dict[str, Any]:
    """Secrets that a target repeats are in no record, whatever their length and their form."""
    through: list[str] = []
    with served(scene.folder, *scene.usual) as service, _client(service, scene) as client:
        for name, secret in (("ACCOUNT", _ACCOUNT), ("TOKEN", _TOKEN)):
            client.put(f"{API}/secrets/{name}", json={"value": secret}).raise_for_status()
            for form in FORMS:
                run = _ran(client, {"url": f"{scene.echo.address}/{form}", "body": {"text": f"${{secrets.{name}}}"}})
                if not run["tried"][-1]["detail"]["response"]["body"]:
                    through.append(f"{name} as {form}: no record")
                if _shows(json.dumps(run), secret):
                    through.append(f"{name} as {form}")
        service.stop()
    return _result(2 * len(FORMS), through)


def https_cookies(scene: Scene) -> dict[str, Any]:
    """With an https address cookies are bound to the host and to https, and no other is taken for one."""
    made = command("admin", "create", "ann", "--store", scene.store, "--json")
    subprocess.run(
        made, cwd=scene.folder, env=environment(scene.folder), input=_PASSWORD, text=True, check=True,
        stdout=subprocess.PIPE,
    )  # fmt: skip
    through: list[str] = []
    settings = {"NOONBELL_TRUSTED_PROXIES": "127.0.0.1"}
    outside = {"X-Forwarded-Proto": "https", "X-Forwarded-For": "203.0.113.9", "Host": "bell.example.org"}
    port = free_port()
    options = ("--public-url", "https://bell.example.org", "--port", str(port))
    with served(scene.folder, *scene.usual, *options, **settings) as service:
        here = f"http://127.0.0.1:{port}"
        with httpx2.Client(base_url=here, headers=outside, timeout=PATIENCE_SECONDS) as browser:
            page = browser.get("/login")
            jar = dict(_cookies(page))
            answer = _log_in(browser, page, jar)
            session = dict(_cookies(answer))
            through += [] if answer.status_code == 303 and session else [f"no login: {answer.status_code}"]
            for response in (page, answer):
                for line in response.headers.get_list("set-cookie"):
                    parts = {part.strip().lower() for part in line.split(";")[1:]}
                    if not line.startswith("__Host-") or not parts >= _BOUND:
                        through.append(f"cookie {line.partition('=')[0]}")
            through += [] if "strict-transport-security" in page.headers else ["no Strict-Transport-Security"]
            through += _session_attempts(browser, session)
        service.stop()
    return _result(5 + len(session), through)


def egress_proxy(scene: Scene) -> dict[str, Any]:
    """A proxy that means harm ends attempts and takes no memory; addresses inside are not asked for through it."""
    through: list[str] = []
    inside = ("http://169.254.169.254/", "http://127.0.0.1:1/", "http://[::1]/", "http://metadata.google.internal/")
    outside = ("garbage", "endless", "huge", "inside")
    with HostileProxy() as proxy:
        options = ("--store", scene.store, *scene.usual[2:4])
        with served(scene.folder, *options, NOONBELL_EGRESS_PROXY=proxy.address) as service:
            with _client(service, scene) as client:
                _ran(
                    client, {"url": "http://garbage.example.com/"}
                )  # what is loaded with the first is no proxy's doing
                before = _peak(service)
                for name in outside:
                    action = {"url": f"http://{name}.example.com/", "follow_redirects": True, "timeout": {"total": 10}}
                    _ran(client, action)
                memory = round((_peak(service) - before) / 1e6, 1)
                through += [url for url in inside if _ran(client, {"url": url})["state"] != "failed"]
                through += [host for host in proxy.asked if not host.endswith(".example.com")]
            service.stop()
    through += ["memory_mb"] if memory >= 10 else []
    return {**_result(len(inside) + len(outside), through), "memory_mb": memory}


ATTEMPTS: Final[dict[str, Callable[[Scene], dict[str, Any]]]] = {
    one.__name__: one for one in (command_environments, echoed_secrets, https_cookies, egress_proxy)
}


# --- small things -----------------------------------------------------------------------------------------------------


def _result(sent: int, through: list[str]) -> dict[str, Any]:
    return {"sent": sent, "refused": sent - len(through), "missed": through}


def _client(service: StreamInFlight, scene: Scene) -> httpx2.Client:
    return service.client(scene.keys["write"])


def _ran(client: httpx2.Client, action: dict[str, Any]) -> dict[str, Any]:
    """A run of the action, once it has ended."""
    body = {"type": "cron", "spec": "0 0 29 2 *", "action": {"kind": "http", **action}}
    made = client.post(f"{API}/schedules", json=body)
    made.raise_for_status()
    asked = client.post(f"{API}/schedules/{made.json()['schedule_id']}/trigger")
    asked.raise_for_status()
    until = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < until:
        found: dict[str, Any] = client.get(f"{API}/runs/{asked.json()['run_id']}").json()
        if found.get("ended_at"):
            return found
        time.sleep(0.05)
    raise TimeoutError(str(action))


def _shows(text: str, secret: str) -> bool:
    """Whether a piece of the secret can be read, by decoding what JSON, HTML, URLs and languages have escaped."""
    readings = [text]
    for _ in range(6):
        decoded = _ESCAPED.sub(_unescaped, html.unescape(unquote(readings[-1])))
        readings.append(decoded.replace('\\"', '"').replace("\\\\", "\\").replace("\\n", "\n"))
    size = min(_PIECE, len(secret))
    pieces = [secret[at : at + size] for at in range(0, len(secret) - size + 1, 5)]
    return any(piece in reading for reading in readings for piece in pieces)


def _unescaped(found: re.Match[str]) -> str:
    octal, digits = found["octal"], found["long"] or found["braces"] or found["short"]
    return chr(int(octal, 8) if octal else int(digits, 16))


def _peak(service: StreamInFlight) -> int:
    """The resident set at its highest since the last look, in bytes."""
    folder = Path(f"/proc/{service.process.pid}")
    found = re.search(r"VmHWM:\s+(\d+)", (folder / "status").read_text(encoding="ascii"))
    (folder / "clear_refs").write_text("5", encoding="ascii")
    return int(found[1]) * 1024 if found else 0


def _cookies(answer: httpx2.Response) -> list[tuple[str, str]]:
    found = []
    for line in answer.headers.get_list("set-cookie"):
        name, _, value = line.partition(";")[0].partition("=")
        found.append((name, value))
    return found


def _log_in(browser: httpx2.Client, page: httpx2.Response, jar: Mapping[str, str]) -> httpx2.Response:
    token = re.findall(r'name="csrf" (?:value|content)="([^"]+)"', page.text)[0]
    form = {"csrf": token, "name": "ann", "password": _PASSWORD}
    sent = "; ".join(f"{name}={value}" for name, value in jar.items())
    return browser.post("/login", data=form, headers={"Cookie": sent, "Origin": "https://bell.example.org"})


def _session_attempts(browser: httpx2.Client, session: Mapping[str, str]) -> list[str]:
    """The session opens the overview under its own name alone, and no form from elsewhere is taken."""
    through: list[str] = []
    for name, value in session.items():
        right = {"Cookie": f"{name}={value}"}
        bare = {
            "Cookie": f"{name.removeprefix('__Host-')}={value}"
        }  # as another host or a plain connection could set it
        if browser.get("/audit", headers=bare).status_code == 200:
            through.append(f"{name} without its prefix")
        if name.endswith("session"):
            shown = browser.get("/audit", headers=right)
            through += [] if shown.status_code == 200 else [f"no page: {shown.status_code}"]
            foreign = browser.post("/plan", data={"text": "x"}, headers={**right, "Origin": "https://evil.example"})
            through += [] if foreign.status_code == 403 else [f"a form from elsewhere: {foreign.status_code}"]
            plain = browser.get("/audit", headers={"Cookie": f"{name}={value}x"})
            through += [] if plain.status_code != 200 else ["a session that is guessed"]
    return through
