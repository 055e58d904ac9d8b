"""Channels: what is checked, what is sealed, and what arrives at real servers on the loopback interface."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from noonbell.actions.egress import Egress, EgressPolicy
from noonbell.actions.secrets.keys import new_ring
from noonbell.actions.secrets.secrets import Secrets
from noonbell.errors import (
    ChannelInUseError,
    ChannelInvalidError,
    ChannelNotFoundError,
    DeliveryError,
    DocumentConflictError,
    MasterKeyMissingError,
)
from noonbell.notify import Channels, Rules
from noonbell.notify.channels import ChannelSender
from noonbell.notify.notice_records import CHANNEL, Notice
from noonbell.notify.notice_text import render
from noonbell.ports import AuditFilter, DocumentFilter, Ledger
from noonbell.store.memory import MemoryStore
from noonbell.store.postgres import PostgresStore
from noonbell.store.sqlite import SqliteStore
from noonbell.testing import ManualClock
from tests.actions.egress.servers import certificate_for
from tests.notify.conftest import NOON
from tests.notify.servers import Hook, mail_server
from tests.store.postgres_server import PostgresServer

TOKEN = "123456:AAbbCCddEEffGGhhIIjjKKllMM"  # noqa: S105 - of no bot
NASTY = Notice(
    "n1/failed", "failed", 1_772_625_600_000_000, "schedule", "s1", "<b>*back_up*</b> & @everyone", "default",
    run_id="s1:scheduled:1", scheduled_for=1_772_625_600_000_000, attempts=2,
    error='<script>alert(1)</script> "quoted" `code` {{name}} <!channel>',
    link="https://cron.test/runs/s1?a=1&b=2",
)  # fmt: skip


@pytest.fixture(params=["memory", "sqlite", "postgres"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Ledger]:
    made: Ledger
    if request.param == "memory":
        made = MemoryStore()
    elif request.param == "sqlite":
        made = SqliteStore(tmp_path / "s.db")
    else:
        server: PostgresServer = request.getfixturevalue("postgres")
        made = PostgresStore(await server.new_ledger(), pool_size=2)
    await made.open()
    yield made
    await made.close()


class Office:
    """Channels that may reach some places on the loopback interface."""

    def __init__(self, store: Ledger, *places: str, tls: Any = None, keys: bool = True) -> None:
        self.store = store
        self.clock = ManualClock(NOON)
        self.secrets = Secrets(store, new_ring() if keys else None, self.clock)
        self.egress = Egress(EgressPolicy(allow=places), tls=tls)
        self.channels = Channels(store, self.clock, secrets=self.secrets, egress=self.egress)
        self.rules = Rules(store, self.clock)

    async def send(self, kind: str, config: dict[str, Any], notice: Notice = NASTY) -> str:
        made = await self.channels.create(name="c", kind=kind, config=config)
        (document,) = await self.store.documents.find(DocumentFilter(CHANNEL, [made.channel_id]))
        sender = ChannelSender(self.clock, egress=self.egress, secrets=self.secrets)
        try:
            return await sender.send(document, render(notice))
        finally:
            await sender.close()


# --- what is stored ---------------------------------------------------------------------------------------------------


async def test_a_secret_of_a_config_is_sealed_and_never_shown(store: Ledger, hook: Hook) -> None:
    office = Office(store, hook.place)
    url = f"{hook.url}/services/T000/very-secret-part"
    made = await office.channels.create(name="ops", kind="slack", config={"url": url}, channel_id="ops")
    assert made.config == {"url": "***"}
    assert (await office.channels.get("ops")).config == {"url": "***"}
    (document,) = await store.documents.find(DocumentFilter(CHANNEL, ["ops"]))
    assert "very-secret-part" not in document.body
    for _, audit in await store.audit.page(AuditFilter(), 0, 100):
        assert "very-secret-part" not in audit.detail
    assert await office.channels.test("ops") == "200: ok"
    assert hook.came[0].path == "/services/T000/very-secret-part"
    (sealed,) = await office.secrets.list("default")
    await office.channels.update("ops", config={"url": f"{hook.url}/another-secret"})
    (fresh,) = await office.secrets.list("default")
    assert fresh.name != sealed.name
    await office.channels.test("ops")
    assert hook.came[1].path == "/another-secret"
    await office.channels.delete("ops")
    assert await office.secrets.list("default") == []


async def test_a_reference_to_a_secret_stays_one(store: Ledger, hook: Hook) -> None:
    office = Office(store, hook.place)
    await office.secrets.put("default", "HOOK", f"{hook.url}/from-the-secret")
    made = await office.channels.create(name="ops", kind="slack", config={"url": "${secrets.HOOK}"})
    assert made.config == {"url": "${secrets.HOOK}"}
    await office.channels.test(made.channel_id)
    assert hook.came[0].path == "/from-the-secret"
    await office.channels.delete(made.channel_id)
    assert [facts.name for facts in await office.secrets.list("default")] == ["HOOK"]


async def test_without_a_master_key_no_secret_is_taken(store: Ledger) -> None:
    office = Office(store, keys=False)
    with pytest.raises(MasterKeyMissingError):
        await office.channels.create(name="ops", kind="slack", config={"url": "https://hooks.example.com/x"})
    assert (await office.channels.list()).items == []


async def test_channels_and_rules_are_kept_listed_changed_and_dropped(store: Ledger) -> None:
    office = Office(store)
    for name in ("a", "b", "c"):
        await office.channels.create(
            name=name, kind="webhook", config={"url": f"https://example.com/{name}"}, channel_id=name
        )
    first = await office.channels.list(limit=2)
    rest = await office.channels.list(limit=2, cursor=first.next_cursor)
    assert [one.channel_id for one in [*first.items, *rest.items]] == ["a", "b", "c"]
    with pytest.raises(ChannelInvalidError, match="taken"):
        await office.channels.create(name="x", kind="webhook", config={"url": "https://x.org/"}, channel_id="a")
    changed = await office.channels.update("a", most_per_minute=None, enabled=False, version=1)
    assert (changed.most_per_minute, changed.enabled, changed.version) == (None, False, 2)
    with pytest.raises(DocumentConflictError):
        await office.channels.update("a", name="z", version=1)
    rule = await office.rules.create(name="r", on=["failed", "late"], channels=["a"], late_seconds=60)
    with pytest.raises(ChannelInUseError, match=rule.rule_id):
        await office.channels.delete("a")
    updated = await office.rules.update(rule.rule_id, channels=["b"], on=["failed"], late_seconds=None)
    assert (updated.channels, updated.on, updated.late_seconds) == (("b",), ("failed",), None)
    assert [one.rule_id for one in (await office.rules.list()).items] == [rule.rule_id]
    await office.channels.delete("a")
    with pytest.raises(ChannelNotFoundError):
        await office.channels.get("a")
    await office.rules.delete(rule.rule_id)
    assert (await office.rules.list()).items == []
    told = {event.event for _, event in await store.audit.page(AuditFilter(), 0, 100)}
    assert {"channel.created", "channel.updated", "channel.deleted", "rule.created", "rule.updated"} <= told


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "config", "field", "right"),
    [
        ("pigeon", {}, "kind", "must be one of email, slack"),
        ("slack", {}, "config.url", "is missing"),
        ("slack", {"url": "hooks.slack.com"}, "config.url", "https://hooks.slack.com/services/"),
        ("slack", {"urll": "https://x.org"}, "config.urll", "did you mean url?"),
        ("slack", {"url": "https://user:pass@x.org/"}, "config.url", "must not hold a user"),
        ("slack", {"url": "${secret.X}"}, "config.url", "secrets"),
        ("slack", {"url": "http://0x7f.1/"}, "config.url", "odd notation"),
        ("webhook", {"url": "http://2130706433/"}, "config.url", "odd notation"),
        ("webhook", {"url": "http://exa mple.com/"}, "config.url", "a space where the host should be"),
        ("webhook", {"url": "http://example.com\\@127.0.0.1/"}, "config.url", "backslash"),
        ("webhook", {"url": "http://example.com:99999/"}, "config.url", "65535"),
        ("webhook", {"url": "http://[::1%25lo]/"}, "config.url", "percent signs"),
        ("telegram", {"token": TOKEN, "chat_id": 1, "api_url": "https://a_b-.c/"}, "config.api_url", "host name"),
        ("telegram", {"token": "nonsense", "chat_id": 1}, "config.token", "of a bot"),
        ("telegram", {"token": TOKEN, "chat_id": "somebody"}, "config.chat_id", "@name"),
        ("webhook", {"url": "ftp://x.org"}, "config.url", "https://example.com/hook"),
        ("webhook", {"url": "https://x.org", "headers": {"Webhook-Id": "1"}}, "config.headers.Webhook-Id", "itself"),
        ("webhook", {"url": "https://x.org", "headers": {"A b": "1"}}, "config.headers", "is not a header name"),
        ("webhook", {"url": "https://x.org", "headers": {"A": "1\r\nB: 2"}}, "config.headers.A", "one line"),
        ("email", {"host": "mail.test", "from": "a@b.c", "to": []}, "config.to", "1 to 50"),
        ("email", {"host": "mail.test", "from": "a@b.c", "to": ["nobody"]}, "config.to[0]", "ann@example.com"),
        ("email", {"host": "mail.test", "from": "a@b.c\r\nBcc: x@y.z", "to": "x@y.z"}, "config.from", "address"),
        ("email", {"host": "m", "from": "a@b.c", "to": "x@y.z", "user": "me"}, "config.password", "neither"),
        ("email", {"host": "m", "from": "a@b.c", "to": "x@y.z", "security": "ssl"}, "config.security", "starttls"),
        (
            "email",
            {"host": "m", "from": "a@b.c", "to": "x@y.z", "security": "none", "user": "u", "password": "abcdefgh"},
            "config.security",
            "where a password is sent",
        ),
        ("apprise", {"url": "json://localhost/"}, "kind", "apprise=True"),
    ],
)
async def test_a_refusal_names_the_field_and_what_is_right(
    kind: str, config: dict[str, Any], field: str, right: str
) -> None:
    store = MemoryStore()
    await store.open()
    with pytest.raises(ChannelInvalidError) as refused:
        await Office(store).channels.create(name="c", kind=kind, config=config)
    assert refused.value.field == field
    assert right in str(refused.value)
    assert "user:pass" not in str(refused.value)
    assert "nonsense" not in str(refused.value)


async def test_a_place_that_egress_refuses_is_not_reached(hook: Hook) -> None:
    store = MemoryStore()
    await store.open()
    async with mail_server() as box:
        office = Office(store)
        with pytest.raises(DeliveryError, match="refused-by-egress"):
            await office.send("webhook", {"url": f"{hook.url}/x"})
        mail = {"host": "127.0.0.1", "port": box.port, "security": "none", "from": "a@b.c", "to": "x@y.z"}
        with pytest.raises(DeliveryError, match="refused-by-egress"):
            await office.send("email", mail)
        assert (hook.count, box.count) == (0, 0)


# --- what arrives -----------------------------------------------------------------------------------------------------


async def test_slack_gets_blocks_without_markup(hook: Hook) -> None:
    store = MemoryStore()
    await store.open()
    await Office(store, hook.place).send("slack", {"url": f"{hook.url}/services/abc"})
    sent = hook.came[0].json
    assert sent["blocks"][0]["text"]["type"] == "plain_text"
    assert sent["blocks"][1]["text"]["type"] == "plain_text"
    assert sent["blocks"][2]["elements"][0]["text"] == "<https://cron.test/runs/s1?a=1&amp;b=2|Open it in Noonbell>"
    assert "<!channel>" not in sent["text"]
    assert "&lt;b&gt;" in sent["text"]
    assert "{{name}}" in sent["text"]  # an error that looks like a template is none


async def test_discord_gets_an_embed_that_mentions_nobody(hook: Hook) -> None:
    store = MemoryStore()
    await store.open()
    await Office(store, hook.place).send("discord", {"url": f"{hook.url}/api/webhooks/1/abc"})
    sent = hook.came[0].json
    assert sent["allowed_mentions"] == {"parse": []}
    (embed,) = sent["embeds"]
    assert r"\*back\_up\*" in embed["title"]
    assert r"\`code\`" in embed["description"]
    assert embed["url"] == NASTY.link


async def test_telegram_gets_escaped_html(hook: Hook) -> None:
    store = MemoryStore()
    await store.open()
    config = {"token": TOKEN, "chat_id": -100123, "thread_id": 7, "api_url": hook.url}
    await Office(store, hook.place).send("telegram", config)
    assert hook.came[0].path == f"/bot{TOKEN}/sendMessage"
    sent = hook.came[0].json
    assert (sent["chat_id"], sent["message_thread_id"], sent["parse_mode"]) == (-100123, 7, "HTML")
    assert "<script>" not in sent["text"]
    assert "&lt;script&gt;" in sent["text"]
    assert '<a href="https://cron.test/runs/s1?a=1&amp;b=2">' in sent["text"]


async def test_a_refusal_of_the_other_side_is_told_without_the_secret(hook: Hook) -> None:
    store = MemoryStore()
    await store.open()
    hook.answers = [(404, f"no such bot: {TOKEN}")]
    office = Office(store, hook.place)
    with pytest.raises(DeliveryError) as failed:
        await office.send("telegram", {"token": TOKEN, "chat_id": 5, "api_url": hook.url})
    assert "it answered 404" in str(failed.value)
    assert TOKEN not in office.secrets.mask(str(failed.value))


async def test_a_webhook_gets_its_headers(hook: Hook) -> None:
    store = MemoryStore()
    await store.open()
    office = Office(store, hook.place)
    await office.secrets.put("default", "TOKEN", "s3cret-token")
    config = {"url": f"{hook.url}/x", "headers": {"Authorization": "Bearer ${secrets.TOKEN}", "X-Other": "plain-one"}}
    made = await office.channels.create(name="w", kind="webhook", config=config)
    assert made.config["headers"] == {"Authorization": "Bearer ${secrets.TOKEN}", "X-Other": "***"}
    await office.channels.test(made.channel_id)
    headers = hook.came[0].headers
    assert (headers["Authorization"], headers["X-Other"]) == ("Bearer s3cret-token", "plain-one")
    assert headers["webhook-signature"].startswith("v1,")


# --- mail -------------------------------------------------------------------------------------------------------------


async def test_mail_arrives_as_text_and_html(tmp_path: Path) -> None:
    store = MemoryStore()
    await store.open()
    certificate = certificate_for("127.0.0.1", tmp_path)
    async with mail_server(certificate.server) as box:
        office = Office(store, f"127.0.0.1:{box.port}", tls=certificate.trusting)
        config = {
            "host": "127.0.0.1", "port": box.port, "from": "bell@example.com", "to": ["ann@example.com", "bo@x.org"],
            "user": "bell", "password": "right horse battery",
        }  # fmt: skip
        said = await office.send("email", config)
        assert "queued as 42" in said
        assert box.encrypted == [True]
        assert box.logins == [(b"bell", b"right horse battery")]
        assert box.recipients == [["ann@example.com", "bo@x.org"]]
        (mail,) = box.mails
        assert mail["Subject"] == "[Noonbell] <b>*back_up*</b> & @everyone failed"
        assert mail["Auto-Submitted"] == "auto-generated"
        text, html = mail.get_body(("plain",)), mail.get_body(("html",))
        assert text is not None
        assert html is not None
        assert "<script>alert(1)</script>" in text.get_content()
        assert "<script>" not in html.get_content()
        assert "&lt;script&gt;" in html.get_content()
        assert 'href="https://cron.test/runs/s1?a=1&amp;b=2"' in html.get_content()


async def test_mail_over_tls_from_the_beginning(tmp_path: Path) -> None:
    store = MemoryStore()
    await store.open()
    certificate = certificate_for("127.0.0.1", tmp_path)
    async with mail_server(certificate.server, at_once=True) as box:
        office = Office(store, f"127.0.0.1:{box.port}", tls=certificate.trusting)
        config = {"host": "127.0.0.1", "port": box.port, "security": "tls", "from": "b@example.com", "to": "a@x.org"}
        await office.send("email", config)
        assert box.count == 1


@pytest.mark.parametrize("why", ["no starttls", "wrong certificate", "wrong password", "recipient", "nobody there"])
async def test_mail_that_cannot_be_sent_says_why(tmp_path: Path, why: str) -> None:
    store = MemoryStore()
    await store.open()
    certificate = certificate_for("127.0.0.1", tmp_path)
    async with mail_server(None if why == "no starttls" else certificate.server) as box:
        trusted = None if why == "wrong certificate" else certificate.trusting
        office = Office(store, "127.0.0.1", tls=trusted)
        config: dict[str, Any] = {"host": "127.0.0.1", "port": box.port, "from": "b@example.com", "to": ["a@x.org"]}
        expected = {
            "no starttls": "STARTTLS", "wrong certificate": "certificate", "wrong password": "535",
            "recipient": "550", "nobody there": "nothing",
        }[why]  # fmt: skip
        if why == "wrong password":
            config |= {"user": "bell", "password": "wrong horse"}
        elif why == "recipient":
            box.refused = {"a@x.org"}
        elif why == "nobody there":
            config["port"] = 1
        with pytest.raises(DeliveryError) as failed:
            await office.send("email", config)
        assert expected.lower() in str(failed.value).lower()
        assert "wrong horse" not in str(failed.value)
        assert box.mails == []


async def test_a_recipient_who_is_refused_does_not_keep_the_others_from_it() -> None:
    store = MemoryStore()
    await store.open()
    async with mail_server() as box:
        box.refused = {"gone@x.org"}
        office = Office(store, f"127.0.0.1:{box.port}")
        config = {
            "host": "127.0.0.1", "port": box.port, "security": "none", "from": "b@example.com",
            "to": ["gone@x.org", "here@x.org"],
        }  # fmt: skip
        said = await office.send("email", config)
        assert "it refused gone@x.org (550)" in said
        assert box.recipients == [["here@x.org"]]
