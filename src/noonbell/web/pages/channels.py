"""Channels: the destinations of notices, each with a button for a test notice. Rules are on the same page.

The secrets of a channel are not sent to the browser: its form leaves these fields empty, and an empty field keeps the
stored value as long as nothing else of the address changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, NamedTuple

from fastapi import Path
from fastapi.responses import Response

from noonbell.api.problems import ProblemError
from noonbell.errors import ChannelNotFoundError, DeliveryError, NoonbellError
from noonbell.notify import Channel
from noonbell.notify.kinds import KINDS
from noonbell.web.pages.refused import listed, number, refused
from noonbell.web.rendering import segment
from noonbell.web.routing import page_router
from noonbell.web.session import Changing, Form, RequestContext, Visiting

router = page_router()

ChannelInPath = Annotated[str, Path(alias="channel_id", pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")]
_MOST: Final = 200


class Ask(NamedTuple):
    """A field of a channel's config in its form."""

    name: str
    label: str
    hint: str = ""
    kind: str = "text"  # or password, number, list, headers, tick, choice
    options: tuple[str, ...] = ()
    required: bool = True


ASKED: Final[Mapping[str, tuple[Ask, ...]]] = {
    "email": (
        Ask("host", "Mail server", "such as smtp.example.com"),
        Ask("port", "Port", "empty: the usual one of its security", "number", required=False),
        Ask("security", "Security", "", "choice", ("starttls", "tls", "none")),
        Ask("from", "From", "an address such as noonbell@example.com"),
        Ask("to", "To", "one or more addresses, between commas", "list"),
        Ask("user", "Log in as", "empty if the server needs no login", required=False),
        Ask("password", "Password", "kept sealed, and never shown", "password", required=False),
    ),
    "slack": (Ask("url", "Address of the incoming webhook", "https://hooks.slack.com/services/…", "password"),),
    "discord": (Ask("url", "Address of the webhook", "https://discord.com/api/webhooks/…", "password"),),
    "telegram": (
        Ask("token", "Token of the bot", "from BotFather; kept sealed", "password"),
        Ask("chat_id", "Chat", "its number, or @name of a channel"),
        Ask("thread_id", "Topic", "the number of a topic in it", "number", required=False),
    ),
    "webhook": (
        Ask("url", "Address", "it is sent a JSON object by POST"),
        Ask("headers", "Headers", "one on each line, as Name: value; the values are kept sealed", "headers",
            required=False),
        Ask("sign", "Sign each request", "with a key of this channel, so that the receiver can check it", "tick",
            required=False),
    ),
    "apprise": (Ask("url", "Address", "as apprise writes them, such as ntfy://topic", "password"),),
}  # fmt: skip
KIND_NAMES: Final = {
    "email": "E-mail", "slack": "Slack", "discord": "Discord", "telegram": "Telegram", "webhook": "Webhook",
    "apprise": "Apprise",
}  # fmt: skip


async def find(visitor: RequestContext, channel_id: str) -> Channel:
    """Return a channel; one of another team counts as not found."""
    found = await visitor.service.channels.get(channel_id)
    if found.team != visitor.team:
        raise ChannelNotFoundError(channel_id)
    return found


@router.get("/channels")
async def show(visitor: Visiting) -> Response:
    asked = visitor.request.query_params
    channels = await visitor.service.channels.list(team=visitor.team, limit=_MOST, cursor=asked.get("channels_after"))
    rules = await visitor.service.rules.list(team=visitor.team, limit=_MOST, cursor=asked.get("rules_after"))
    names = {one.channel_id: one.name for one in channels.items}
    letters = await visitor.schedules.dead_letters(limit=1)
    return visitor.page(
        "channels.html", channels=channels, rules=rules, names=names, kinds=KIND_NAMES, undelivered=bool(letters.items)
    )


@router.get("/channels/new")
async def new(visitor: Visiting) -> Response:
    kind = visitor.request.query_params.get("kind", "")
    if kind not in KINDS:
        kinds = {name: label for name, label in KIND_NAMES.items() if name != "apprise" or _apprise(visitor)}
        return visitor.page("channel_kinds.html", kinds=kinds)
    return _form(visitor, kind, None, {"most_per_minute": 20, "enabled": True, "sign": True})


@router.post("/channels/new")
async def create(visitor: Changing) -> Response:
    kind = visitor.form.text("kind")
    if kind not in KINDS:
        raise ProblemError(422, f"The kind {kind!r} of a channel is not known", field="kind")
    form = visitor.form
    try:
        made = await visitor.schedules.channels.create(
            name=form.text("name"), kind=kind, config=_config(kind, form), team=visitor.team,
            most_per_minute=_rate(form), enabled=form.ticked("enabled"),
        )  # fmt: skip
    except NoonbellError as error:
        return _form(visitor, kind, None, form, await refused(visitor, error, _names(kind), _paths(kind)))
    visitor.service.events.nudge()
    return visitor.go("/channels", f"The channel “{made.name}” was created. Test it, and add a rule that uses it")


@router.get("/channels/{channel_id}")
async def edit(visitor: Visiting, channel_id: ChannelInPath) -> Response:
    channel = await find(visitor, channel_id)
    return _form(visitor, channel.kind, channel, _typed(channel))


@router.post("/channels/{channel_id}")
async def change(visitor: Changing, channel_id: ChannelInPath) -> Response:
    channel, form = await find(visitor, channel_id), visitor.form
    changes: dict[str, Any] = {
        "name": form.text("name"), "most_per_minute": _rate(form), "enabled": form.ticked("enabled"),
    }  # fmt: skip
    try:
        config = _config(channel.kind, form)
        if _differs(channel, config):
            lost = [name for name in _secret(channel.kind) if name in channel.config and name not in config]
            if lost:
                reason = "is stored encrypted and belongs to this address: enter it again, or change only the name"
                return _form(visitor, channel.kind, channel, form, {lost[0]: reason})
            beyond = {name: value for name, value in channel.config.items() if name not in _names(channel.kind)}
            changes["config"] = beyond | config
        await visitor.schedules.channels.update(channel_id, **changes)
    except NoonbellError as error:
        errors = await refused(visitor, error, _names(channel.kind), _paths(channel.kind))
        return _form(visitor, channel.kind, channel, form, errors)
    visitor.service.events.nudge()
    return visitor.go("/channels", f"The channel “{channel.name}” is changed")


@router.post("/channels/{channel_id}/test")
async def test(visitor: Changing, channel_id: ChannelInPath) -> Response:
    """Send one notice past all limits, and show the receiver's answer or why it was not delivered."""
    channel = await find(visitor, channel_id)
    try:
        answer = await visitor.schedules.channels.test(channel_id)
    except DeliveryError as error:
        return visitor.go("/channels", f"The test to “{channel.name}” was not delivered. {error}", "bad")
    return visitor.go("/channels", f"The test to “{channel.name}” was delivered: {answer}")


@router.post("/channels/{channel_id}/turn")
async def turn(visitor: Changing, channel_id: ChannelInPath) -> Response:
    channel = await find(visitor, channel_id)
    changed = await visitor.schedules.channels.update(channel_id, enabled=not channel.enabled)
    visitor.service.events.nudge()
    state = "on" if changed.enabled else "off; nothing is sent to it"
    return visitor.go("/channels", f"The channel “{channel.name}” is {state}", "good" if changed.enabled else "plain")


@router.post("/channels/{channel_id}/signing-keys")
async def signing_keys(visitor: Changing, channel_id: ChannelInPath) -> Response:
    """Show the keys with which a webhook's receiver verifies requests. It takes a POST, so that no link shows them."""
    channel = await find(visitor, channel_id)
    keys = await visitor.schedules.channels.signing_keys(channel_id)
    return _form(visitor, channel.kind, channel, _typed(channel), status=200, keys=keys)


@router.post("/channels/{channel_id}/delete")
async def delete(visitor: Changing, channel_id: ChannelInPath) -> Response:
    channel = await find(visitor, channel_id)
    await visitor.schedules.channels.delete(channel_id)
    visitor.service.events.nudge()
    return visitor.go("/channels", f"The channel “{channel.name}” is deleted")


# --- its form ---------------------------------------------------------------------------------------------------------


def _form(
    visitor: RequestContext,
    kind: str,
    channel: Channel | None,
    typed: Mapping[str, Any],
    errors: Mapping[str, str] | None = None,
    **values: Any,
) -> Response:
    status = values.pop("status", 422 if errors else 200)
    shown = {name: typed.get(name, "") for name in (*_names(kind), "most_per_minute")}
    for ask in ASKED[kind]:
        if ask.kind in ("password", "headers"):
            shown[ask.name] = ""  # secrets are not sent back, even if they were just typed
    shown["enabled"] = _is_on(typed.get("enabled"))
    usual = {"keys": None, "errors": errors or {}, "action": "/channels/new"}
    if channel is not None:
        usual["action"] = f"/channels/{segment(channel.channel_id)}"
    return visitor.page(
        "channel.html", status, kind=kind, kind_name=KIND_NAMES[kind], asked=ASKED[kind], channel=channel, typed=shown,
        **(usual | values),
    )  # fmt: skip


def _is_on(value: Any) -> bool:
    return value not in (None, False, "", "off")


def _names(kind: str) -> list[str]:
    return ["name", "most_per_minute", *(ask.name for ask in ASKED[kind])]


def _paths(kind: str) -> dict[str, str]:
    return {f"config.{ask.name}": ask.name for ask in ASKED[kind]}


def _typed(channel: Channel) -> dict[str, Any]:
    config = {
        name: ", ".join(map(str, value)) if isinstance(value, list) else value for name, value in channel.config.items()
    }
    return {
        **config, "name": channel.name, "most_per_minute": channel.most_per_minute or "", "enabled": channel.enabled,
    }  # fmt: skip


def _config(kind: str, form: Form) -> dict[str, Any]:
    read: dict[str, Any] = {}
    for ask in ASKED[kind]:
        text = form.text(ask.name)
        if ask.kind == "tick":
            read[ask.name] = form.ticked(ask.name)
        elif ask.kind == "list":
            read[ask.name] = listed(text)
        elif ask.kind == "headers":
            lines = [line.partition(":") for line in text.splitlines() if line.strip()]
            if lines:
                read[ask.name] = {name.strip(): value.strip() for name, _, value in lines}
        elif text:
            read[ask.name] = number(text) if ask.kind == "number" else text
    return read


def _differs(channel: Channel, config: dict[str, Any]) -> bool:
    """Return whether the form differs from the channel: a secret was typed, or a visible value changed."""
    secret = _secret(channel.kind)
    if any(config.get(name) for name in secret):
        return True
    before = {name: value for name, value in channel.config.items() if name not in secret}
    return before != {**before, **{name: value for name, value in config.items() if name not in secret}}


def _secret(kind: str) -> list[str]:
    return [ask.name for ask in ASKED[kind] if ask.kind in ("password", "headers")]


def _rate(form: Form) -> Any:
    return number(form.text("most_per_minute"))


def _apprise(visitor: RequestContext) -> bool:
    return visitor.service.settings.apprise
