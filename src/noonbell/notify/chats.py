"""Slack, Discord and Telegram: notices in the format of each service.

The text of a notice goes where no markup is read, or is escaped; no user is mentioned, and no link in it is
opened for a preview. The address of a Slack or Discord hook, and the token of a Telegram bot, are secret.
"""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

from noonbell.errors import ChannelInvalidError
from noonbell.notify import checks
from noonbell.notify.notice_text import RenderedNotice, cut
from noonbell.notify.sending import SendContext, post_json, said

TELEGRAM_API: Final = "https://api.telegram.org"
_DISCORD_MARKUP: Final = re.compile(r"([\\*_~`|>\[\]()#<@:-])")
_COLOURS: Final = {
    "failed": 0xD64545,
    "missed": 0xD64545,
    "undelivered": 0xD64545,
    "no_engine": 0xD64545,
    "late": 0xE0A030,
    "slow": 0xE0A030,
    "held": 0xE0A030,
}
_CALM: Final = 0x3E9B5F


# --- Slack ------------------------------------------------------------------------------------------------------------


def check_slack(config: Mapping[str, Any]) -> dict[str, Any]:
    checks.known_only(config, ("url",))
    right = "the address of an incoming webhook such as https://hooks.slack.com/services/…"
    return {"url": checks.url("config.url", config.get("url"), right, secret=True)}


def slack_body(rendered: RenderedNotice) -> dict[str, Any]:
    """Blocks for Slack itself, and a text for programs that know nothing else."""
    title, text = cut(rendered.title, 150), cut(rendered.text, 2_900)
    whole = f"*{_slack(rendered.title)}*" + (f"\n{_slack(text)}" if text else "")
    blocks: list[dict[str, Any]] = [{"type": "header", "text": _plain(title)}]
    if text:
        blocks.append({"type": "section", "text": _plain(text)})
    if rendered.link is not None:
        link = f"<{_slack_link(rendered.link)}|Open it in Noonbell>"
        whole += f"\n{link}"
        blocks.append({"type": "context", "elements": [{"type": "mrkdwn", "text": link}]})
    return {"text": whole, "blocks": blocks, "unfurl_links": False, "unfurl_media": False}


def _plain(text: str) -> dict[str, Any]:
    return {"type": "plain_text", "text": text, "emoji": False}


def _slack(text: str) -> str:
    """Text inside mrkdwn. Its signs for bold and the rest cannot be escaped, so they are kept from their neighbours."""
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([*_~`])", "\u200b\\1\u200b", escaped)


def _slack_link(url: str) -> str:
    return url.replace("&", "&amp;").replace("<", "%3C").replace(">", "%3E").replace("|", "%7C")


async def send_slack(context: SendContext, config: Mapping[str, Any], rendered: RenderedNotice) -> str:
    return said(await post_json(context, "Slack", config["url"], slack_body(rendered)))


# --- Discord ----------------------------------------------------------------------------------------------------------


def check_discord(config: Mapping[str, Any]) -> dict[str, Any]:
    checks.known_only(config, ("url",))
    right = "the address of a webhook such as https://discord.com/api/webhooks/…"
    return {"url": checks.url("config.url", config.get("url"), right, secret=True)}


def discord_body(rendered: RenderedNotice) -> dict[str, Any]:
    embed: dict[str, Any] = {
        "title": cut(_discord(cut(rendered.title, 120)), 256),
        "description": _discord(cut(rendered.text, 1_900)),
        "color": _COLOURS.get(rendered.event, _CALM),
    }
    if rendered.link is not None:
        embed["url"] = rendered.link
    return {"embeds": [embed], "allowed_mentions": {"parse": []}}


def _discord(text: str) -> str:
    return _DISCORD_MARKUP.sub(r"\\\1", text)


async def send_discord(context: SendContext, config: Mapping[str, Any], rendered: RenderedNotice) -> str:
    return said(await post_json(context, "Discord", config["url"], discord_body(rendered)))


# --- Telegram ---------------------------------------------------------------------------------------------------------


def check_telegram(config: Mapping[str, Any]) -> dict[str, Any]:
    checks.known_only(config, ("token", "chat_id", "thread_id", "api_url"))
    right = "the token of a bot, such as 123456:ABC… of BotFather"
    token = checks.text("config.token", config.get("token"), right, secret=True)
    if not token.startswith("${") and not re.fullmatch(r"\d+:[A-Za-z0-9_-]{20,}", token):
        raise ChannelInvalidError("config.token", None, f"must be {right}")
    chat_id = config.get("chat_id")
    named = isinstance(chat_id, str) and re.fullmatch(r"@[A-Za-z0-9_]{4,32}|-?\d{1,20}", chat_id)
    if not named and (type(chat_id) is not int or chat_id == 0):
        raise ChannelInvalidError("config.chat_id", chat_id, "must be the number of a chat, or @name of a channel")
    checked: dict[str, Any] = {"token": token, "chat_id": chat_id}
    if config.get("thread_id") is not None:
        checked["thread_id"] = checks.whole("config.thread_id", config["thread_id"], 1, 2**53)
    if config.get("api_url") is not None:
        right = f"the address of a Bot API server such as {TELEGRAM_API}"
        checked["api_url"] = checks.url("config.api_url", config["api_url"], right).rstrip("/")
    return checked


def telegram_body(config: Mapping[str, Any], rendered: RenderedNotice) -> dict[str, Any]:
    title, text = html.escape(rendered.title), html.escape(cut(rendered.text, 3_500))
    whole = f"<b>{title}</b>" + (f"\n{text}" if text else "")
    if rendered.link is not None:
        whole += f'\n<a href="{html.escape(rendered.link)}">Open it in Noonbell</a>'
    body: dict[str, Any] = {
        "chat_id": config["chat_id"],
        "text": whole,
        "parse_mode": "HTML",
        "link_preview_options": {"is_disabled": True},
    }
    if "thread_id" in config:
        body["message_thread_id"] = config["thread_id"]
    return body


async def send_telegram(context: SendContext, config: Mapping[str, Any], rendered: RenderedNotice) -> str:
    token = quote(config["token"], safe=":")
    url = f"{config.get('api_url', TELEGRAM_API)}/bot{token}/sendMessage"
    return said(await post_json(context, "Telegram", url, telegram_body(config, rendered)))
