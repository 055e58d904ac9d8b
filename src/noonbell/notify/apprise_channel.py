"""Any service that apprise knows, as an extra: `pip install noonbell[notify]`.

**Not checked by egress.** apprise opens its own connections, so an address of this kind reaches whatever this machine
reaches. It is off unless the operator turns it on (`apprise=True`), and then every user who may create channels has to
be trusted with that.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from noonbell.errors import ChannelInvalidError, DeliveryError
from noonbell.notify import checks
from noonbell.notify.notice_text import RenderedNotice
from noonbell.notify.sending import SendContext


def check_apprise(config: Mapping[str, Any]) -> dict[str, Any]:
    checks.known_only(config, ("url",))
    right = "an address of apprise such as mailto://… or ntfy://…"
    url = checks.text("config.url", config.get("url"), right, longest=checks.LONGEST_URL, secret=True)
    if not url.startswith("${") and "://" not in url:
        raise ChannelInvalidError("config.url", None, f"must be {right}")
    return {"url": url}


async def send_apprise(context: SendContext, config: Mapping[str, Any], rendered: RenderedNotice) -> str:
    del context  # apprise cannot be led through egress
    try:
        import apprise  # noqa: PLC0415 - an extra, and heavy
    except ImportError:
        raise DeliveryError("apprise", "it is not installed; pip install noonbell[notify]") from None
    service = apprise.Apprise()
    if not service.add(config["url"]):
        raise DeliveryError("apprise", "it cannot read the channel's address")
    link = "" if rendered.link is None else f"\n{rendered.link}"
    try:
        arrived = await service.async_notify(title=rendered.title, body=f"{rendered.text or rendered.title}{link}")
    except Exception as error:  # noqa: BLE001 - what kinds there are is the affair of its many services
        raise DeliveryError("apprise", f"it failed with {type(error).__name__}") from None
    if not arrived:
        raise DeliveryError("apprise", "it says that the notice was not delivered; its own log has the reason")
    return "apprise says that it was delivered"
