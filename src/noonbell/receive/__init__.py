"""The receiver of signed HTTP jobs: it checks that a message is genuine, recent and not handled before.

    receiver = Receiver("whsec_…")

    app = receiver.guard(app)                          # any ASGI application

    @api.post("/hook")                                 # FastAPI
    async def hook(message: Annotated[Received, Depends(received(receiver))]) -> None: ...

where `received` comes from `noonbell.receive.fastapi`. Needs nothing but the standard library, and knows nothing of the
scheduler: it takes messages of every sender that follows Standard Webhooks (https://www.standardwebhooks.com).
"""

from noonbell.receive.asgi import GuardedApp
from noonbell.receive.receiver import Received, Receiver
from noonbell.receive.seen import Claim, MemorySeen, Seen
from noonbell.receive.seen_file import SqliteSeen

__all__ = ["Claim", "GuardedApp", "MemorySeen", "Received", "Receiver", "Seen", "SqliteSeen"]
