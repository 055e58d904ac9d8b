"""`noonbell channels` and `noonbell rules` on a local store, against a server that answers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from click.testing import CliRunner, Result

from noonbell.actions.secrets.keys import create_key_file
from noonbell.cli.program import program
from noonbell.store.sqlite import SqliteStore


class ConnectionTarget:
    def __init__(self, folder: Path) -> None:
        self.url = f"sqlite:///{folder / 'app.db'}"
        self.keys = folder / "master.keys"
        create_key_file(self.keys)

    def run(self, *args: str, value: str | None = None, keys: bool = False) -> Result:
        given = [*args, "--store", self.url, *(["--key-file", str(self.keys)] if keys else [])]
        return CliRunner().invoke(program, given, input=value)


@pytest.fixture
async def place(tmp_path: Path) -> ConnectionTarget:
    store = SqliteStore(tmp_path / "app.db")
    await store.open()
    await store.close()
    return ConnectionTarget(tmp_path)


@pytest.fixture
def server() -> Iterator[tuple[str, list[str]]]:
    paths: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            paths.append(self.path)
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"thank you")

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is the library's
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as made:
        thread = Thread(target=made.serve_forever, daemon=True)
        thread.start()
        yield f"127.0.0.1:{made.server_port}", paths
        made.shutdown()
        thread.join()


def test_a_channel_is_added_tried_out_and_removed(place: ConnectionTarget, server: tuple[str, list[str]]) -> None:
    where, paths = server
    added = place.run("channels", "add", "ops", "--kind", "slack", value=f"http://{where}/hidden-path\n", keys=True)
    assert added.exit_code == 0, added.output
    sent = place.run("channels", "test", "ops", "--allow", where, keys=True)
    assert (sent.exit_code, sent.output) == (0, "Sent. The receiver answered: 200: thank you\n")
    assert paths == ["/hidden-path"]
    listed = place.run("channels", "list", "--json")
    assert [one["config"] for one in json.loads(listed.output)] == [{"url": "***"}]
    rule = place.run("rules", "add", "all", "--on", "failed", "--on", "late", "--late", "60", "--to", "ops")
    assert "failed, late (over 60 s) of everything to ops" in rule.output
    refused = place.run("channels", "rm", "ops")
    assert refused.exit_code == 2
    assert "named by the rules all" in refused.output
    assert place.run("rules", "rm", "all").exit_code == 0
    assert place.run("channels", "rm", "ops").exit_code == 0
    assert place.run("channels", "list").output == "No channels.\n"


def test_what_does_not_arrive_is_told(place: ConnectionTarget, server: tuple[str, list[str]]) -> None:
    where, paths = server
    place.run("channels", "add", "ops", "--kind", "discord", value=f"http://{where}/hidden-path\n", keys=True)
    failed = place.run("channels", "test", "ops", keys=True)
    assert failed.exit_code == 2
    assert "refused-by-egress" in failed.output
    assert "hidden-path" not in failed.output
    assert paths == []


def test_a_secret_among_the_arguments_is_refused(place: ConnectionTarget) -> None:
    refused = place.run("channels", "add", "t", "--kind", "telegram", "--set", "token=1:abc", "--set", "chat_id=5")
    assert refused.exit_code == 2
    assert "must not be an argument" in refused.output


def test_a_rule_without_its_threshold_says_what_is_missing(place: ConnectionTarget) -> None:
    refused = place.run("rules", "add", "x", "--on", "slow", "--to", "ops", "--json")
    assert refused.exit_code == 2
    assert "slow_seconds" in json.loads(refused.output)["error"]["message"]


def test_the_keys_of_a_webhook_are_shown(place: ConnectionTarget) -> None:
    place.run("channels", "add", "w", "--kind", "webhook", "--set", "url=https://example.com/x", keys=True)
    assert place.run("channels", "key", "w", keys=True).output.startswith("whsec_")
