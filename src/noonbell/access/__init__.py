"""Access control: teams, API keys, users of the dashboard, their sessions, and limits on failed logins.

Everything is kept as documents of the store and every change is audited. No key, password or token is stored: only what
is needed to know it again.
"""

from noonbell.access.access import Access
from noonbell.access.access_records import ApiKey, Caller, Scope, Session, Team, User

__all__ = ["Access", "ApiKey", "Caller", "Scope", "Session", "Team", "User"]
