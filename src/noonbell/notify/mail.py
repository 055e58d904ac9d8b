"""E-mail by SMTP: text and HTML in one message, over a connection that egress has made.

aiosmtplib speaks the protocol; the socket is ours, so that the address was judged where the connection was made. With
`tls` the connection is encrypted from its beginning, with `starttls` (the default) before anything is said, and it
fails where the server cannot do that; `none` is for a relay on the own host or network. A message has the same
Message-ID each time it is sent, so that a mailbox can recognise a repeat.
"""

from __future__ import annotations

import asyncio
import contextlib
import email.utils
import hashlib
import html
import ssl
from collections.abc import Mapping
from email.message import EmailMessage
from typing import Any, Final, Literal

from noonbell.actions.egress import Egress
from noonbell.actions.egress.failures import failure_of
from noonbell.core.instants import moment
from noonbell.errors import ChannelInvalidError, DeliveryError, EgressError
from noonbell.notify import checks
from noonbell.notify.notice_text import RenderedNotice, cut
from noonbell.notify.sending import TIMEOUT_SECONDS, SendContext

_PORTS: Final = {"starttls": 587, "tls": 465, "none": 25}
_MOST_RECIPIENTS: Final = 50


def check_email(config: Mapping[str, Any]) -> dict[str, Any]:
    checks.known_only(config, ("host", "port", "security", "user", "password", "from", "to"))
    security = config.get("security", "starttls")
    if security not in _PORTS:
        raise ChannelInvalidError("config.security", security, f"must be one of {', '.join(_PORTS)}")
    checked: dict[str, Any] = {
        "host": checks.text("config.host", config.get("host"), "the name of a mail server such as smtp.example.com"),
        "port": checks.whole("config.port", config.get("port", _PORTS[security]), 1, 65_535),
        "security": security,
        "from": checks.address("config.from", config.get("from")),
        "to": _recipients(config.get("to")),
    }
    user, password = config.get("user"), config.get("password")
    if (user is None) != (password is None):
        missing = "config.user" if user is None else "config.password"
        raise ChannelInvalidError(missing, None, "is missing; give user and password, or neither")
    if user is not None:
        if security == "none":
            raise ChannelInvalidError("config.security", security, "must be starttls or tls where a password is sent")
        checked["user"] = checks.text("config.user", user, "the name to log in with")
        checked["password"] = checks.text("config.password", password, "the password", secret=True)
    return checked


def _recipients(value: object) -> list[str]:
    given = [value] if isinstance(value, str) else value
    if not isinstance(given, list | tuple) or not 1 <= len(given) <= _MOST_RECIPIENTS:
        right = f'must be an address, or a list of 1 to {_MOST_RECIPIENTS}, such as ["ann@example.com"]'
        raise ChannelInvalidError("config.to", value, right)
    return list(dict.fromkeys(checks.address(f"config.to[{place}]", one) for place, one in enumerate(given)))


def mail_of(config: Mapping[str, Any], rendered: RenderedNotice) -> EmailMessage:
    message = EmailMessage()
    subject = "".join(char if char.isprintable() else " " for char in rendered.title)
    message["Subject"] = f"[Noonbell] {subject}"
    message["From"] = config["from"]
    message["To"] = ", ".join(config["to"])
    message["Date"] = email.utils.format_datetime(moment(rendered.at))
    digest = hashlib.sha256(rendered.id.encode()).hexdigest()[:32]
    message["Message-ID"] = f"<{digest}@{config['from'].rpartition('@')[2]}>"
    message["Auto-Submitted"] = "auto-generated"
    link = "" if rendered.link is None else f"\n\n{rendered.link}"
    message.set_content(f"{rendered.title}\n\n{rendered.text}{link}\n")
    message.add_alternative(html_of(rendered), subtype="html")
    return message


def html_of(rendered: RenderedNotice) -> str:
    parts = [f"<h2>{html.escape(rendered.title)}</h2>"]
    if rendered.text:
        parts.append(f'<pre style="white-space:pre-wrap;font-family:inherit">{html.escape(rendered.text)}</pre>')
    if rendered.link is not None:
        parts.append(f'<p><a href="{html.escape(rendered.link)}">Open it in Noonbell</a></p>')
    return f"<!doctype html><html><body>{''.join(parts)}</body></html>\n"


async def send_email(context: SendContext, config: Mapping[str, Any], rendered: RenderedNotice) -> str:
    target = f"the mail server ({config['host']}:{config['port']})"
    try:
        import aiosmtplib  # noqa: PLC0415 - an extra
    except ImportError:
        raise DeliveryError(target, "aiosmtplib is not installed; pip install noonbell[server]") from None
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            refused, answer = await _talk(context.egress, config, mail_of(config, rendered))
    except aiosmtplib.SMTPRecipientsRefused as error:
        answers = "; ".join(f"{one.recipient}: {one.code} {one.message}" for one in error.recipients)
        raise DeliveryError(target, f"it takes mail for none of the recipients: {_line(answers)}") from None
    except aiosmtplib.SMTPResponseException as error:
        raise DeliveryError(target, f"it answered {error.code} {_line(error.message)}") from None
    except (aiosmtplib.SMTPException, EgressError) as error:
        raise DeliveryError(target, _line(str(error))) from None
    except TimeoutError:
        raise DeliveryError(target, f"it was not done within {TIMEOUT_SECONDS:g} s") from None
    except OSError as error:
        raise DeliveryError(target, str(failure_of(error, f"{config['host']}:{config['port']}"))) from None
    answered = _line(answer)
    if refused:  # the others have it: sending it again would give it to them twice
        answered += "; it refused " + ", ".join(f"{one} ({code})" for one, (code, _) in refused.items())
    return answered


async def _talk(egress: Egress, config: Mapping[str, Any], message: EmailMessage) -> tuple[dict[str, Any], str]:
    import aiosmtplib  # noqa: PLC0415 - an extra

    security: Literal["starttls", "tls", "none"] = config["security"]
    made = await egress.connect(config["host"], config["port"])
    client = aiosmtplib.SMTP(
        hostname=config["host"],
        sock=made,
        use_tls=security == "tls",
        start_tls=security == "starttls",
        tls_context=None if security == "none" else egress.tls or ssl.create_default_context(),
        username=config.get("user"),
        password=config.get("password"),
        # the name of this machine is private, and looking it up may take long
        local_hostname="localhost",
        timeout=TIMEOUT_SECONDS,
    )
    try:
        await client.connect()  # the socket is its own from here on
        sent = await client.send_message(message)
        # it has taken the mail; how it says good-bye is all the same
        with contextlib.suppress(aiosmtplib.SMTPException):
            await client.quit()
        return sent
    finally:
        client.close()


def _line(said: str) -> str:
    return cut(" ".join(said.split()), 300)
