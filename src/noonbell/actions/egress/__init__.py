"""The one way out: HTTP jobs, messages, notifications and monitors reach other machines through here.

    egress = Egress(EgressPolicy(allow=("10.20.0.0/16", "hooks.internal:8080")))
    client = egress.client()
    answer = await client.fetch(Outgoing("POST", "https://example.com/hook", body=b"{}"))
    reader, writer = await egress.open_connection("smtp.example.com", 465, ssl=True)

`gate` describes how a connection is checked. aiohttp is loaded when the first session or client is made.
"""

from noonbell.actions.egress.exchange import HttpClient, Incoming, Outgoing
from noonbell.actions.egress.gate import ApprovedRoute, Egress, LookUp
from noonbell.actions.egress.policy import EgressPolicy

__all__ = ["ApprovedRoute", "Egress", "EgressPolicy", "HttpClient", "Incoming", "LookUp", "Outgoing"]
