"""No other part of the package opens a connection: what could is imported and called in `actions/egress` only.

The exceptions are named with their reason. They speak to places that the operator's own configuration names, never to
one that came with a schedule.
"""

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import noonbell
from tests.patience import PATIENCE_SECONDS

PACKAGE = Path(noonbell.__file__).parent
GATE = "actions/egress/"

# Modules that open connections by themselves, and what the standard library offers for it.
CONNECTING = {
    "aiohttp", "aiosmtplib", "amqp", "apprise", "asyncpg", "celery", "ftplib", "http.client", "httpx", "imaplib",
    "kombu", "nntplib", "poplib",
    "psycopg", "pycurl", "redis", "requests", "smtplib", "socket", "socketserver", "telnetlib", "urllib.request",
    "urllib3", "valkey", "xmlrpc.client",
}  # fmt: skip
CALLS = {
    "create_connection", "create_datagram_endpoint", "create_unix_connection", "getaddrinfo", "gethostbyname",
    "open_connection", "open_unix_connection", "sock_connect", "urlopen",
}  # fmt: skip

ALLOWED = {
    ("store/postgres/", "asyncpg"): "the store, whose address is the operator's",
    ("actions/targets/redis_stream.py", "redis"): "the Redis stream, whose address is the operator's",
    ("actions/targets/postgres_outbox.py", "asyncpg"): "the table for messages, whose address is the operator's",
    ("actions/targets/celery_tasks.py", "celery"): "the broker, whose address is the operator's",
    ("timeline/link.py", "redis"): "the timeline, whose address is the operator's",
    ("notify/mail.py", "aiosmtplib"): "over a socket that egress has connected",
    ("notify/apprise_channel.py", "apprise"): "off unless the operator turns it on; its page says what that means",
    ("cli/backend/", "http.client"): "the operator's own service, whose address the command line names",
    ("declarative/scheduler.py", "socket"): "the name of this host",
    ("periodic/scheduler.py", "socket"): "the name of this host",
    ("periodic/store_lease.py", "socket"): "the name of this host",
    ("engine/membership.py", "socket"): "the name of this host",
    ("server/watchdog.py", "socket"): "the socket of systemd on this host, whose path the environment names",
    ("server/serving.py", "socket"): "whether this host has the address to listen on",
}
HOST_NAME_ONLY = {path for (path, _), reason in ALLOWED.items() if reason == "the name of this host"}


Nodes = tuple[ast.AST, ...]


def nodes(source: str) -> Nodes:
    """The imports, calls and attributes of a module."""
    kinds = (ast.Import, ast.ImportFrom, ast.Call, ast.Attribute)
    return tuple(node for node in ast.walk(ast.parse(source)) if isinstance(node, kinds))


def may_connect(source: str) -> bool:
    """Whether a module holds the words of an import or a call that connects: only then it is parsed."""
    return any(all(word in source for word in name.split(".")) for name in CONNECTING | CALLS)


@cache
def modules() -> dict[str, Nodes]:
    """Each module of the package that may connect, read once for all tests."""
    sources = {path: path.read_text(encoding="utf-8") for path in sorted(PACKAGE.rglob("*.py"))}
    return {
        path.relative_to(PACKAGE).as_posix(): nodes(source) for path, source in sources.items() if may_connect(source)
    }


def imported(tree: Nodes) -> Iterator[str]:
    for node in tree:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def connecting(tree: Nodes) -> set[str]:
    return {one for name in imported(tree) for one in CONNECTING if name == one or name.startswith(one + ".")}


def called(tree: Nodes) -> set[str]:
    names = (node.func for node in tree if isinstance(node, ast.Call))
    return {
        name.attr if isinstance(name, ast.Attribute) else name.id
        for name in names
        if isinstance(name, ast.Attribute | ast.Name)
    }


def test_only_the_gate_imports_what_connects() -> None:
    strays = {
        (path, name)
        for path, tree in modules().items()
        if not path.startswith(GATE)
        for name in connecting(tree)
        if not any(path.startswith(where) and name == what for where, what in ALLOWED)
    }
    assert strays == set()


def test_only_the_gate_connects_and_looks_names_up() -> None:
    # `egress.open_connection` is the gate's own; who calls it has the gate in hand
    strays = {
        (path, name) for path, tree in modules().items() if not path.startswith(GATE) for name in called(tree) & CALLS
    }
    assert {(path, name) for path, name in strays if name != "open_connection" or not mentions_the_gate(path)} == set()


def mentions_the_gate(path: str) -> bool:
    tree = modules()[path]
    direct = any(
        isinstance(node, ast.Attribute)
        and node.attr == "open_connection"
        and isinstance(node.value, ast.Name)
        and node.value.id == "asyncio"
        for node in tree
    )
    return any(name.startswith("noonbell.actions.egress") for name in imported(tree)) and not direct


@pytest.mark.parametrize("path", sorted(HOST_NAME_ONLY))
def test_who_imports_socket_asks_it_for_the_name_of_this_host_only(path: str) -> None:
    asked = {
        node.attr
        for node in modules()[path]
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "socket"
    }
    assert asked <= {"gethostname"}


def test_names_are_looked_up_in_one_place() -> None:
    assert [path for path, tree in modules().items() if "getaddrinfo" in called(tree)] == ["actions/egress/gate.py"]


def test_the_rules_would_find_a_stray() -> None:
    tree = nodes("from urllib import request\nimport http.client as c\nasync def f(): await loop.getaddrinfo('x', 1)")
    assert connecting(tree) == {"urllib.request", "http.client"}
    assert called(tree) == {"getaddrinfo"}


def test_the_gate_loads_the_http_client_when_it_is_used() -> None:
    program = (
        "import sys, noonbell.actions.egress as e; e.Egress(e.EgressPolicy(allow=('10.0.0.0/8',)));"
        "print({'aiohttp', 'yarl', 'cryptography', 'idna'} & set(sys.modules))"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=PATIENCE_SECONDS
    )
    assert answer.stdout.strip() == "set()"
