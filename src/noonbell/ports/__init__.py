"""The seams of the engine: what a clock and a ledger must do.

A ledger has parts (`schedules`, `runs`, `history`, `engines`, `outbox`, `documents`, `audit`), and their verbs are its
state transitions. Each verb is one transaction: it happens whole or not at all, and a StoreError says that nothing
happened.
"""

from noonbell.ports.audit import AuditFilter, LedgerAudit
from noonbell.ports.clock import Clock
from noonbell.ports.documents import DocumentFilter, LedgerDocuments
from noonbell.ports.engines import LedgerEngines, MakeNotices, Members, Rescue
from noonbell.ports.history import LedgerHistory, LedgerKey, PastRun, RunFilter
from noonbell.ports.ledger import PARTS, BackgroundService, Hold, Ledger, Pruned
from noonbell.ports.ledger_tables import ALL_ROWS, LEDGER_TABLES, LedgerTable, RowBounds, TableShape
from noonbell.ports.outbox import (
    BOUNDS,
    AwayTarget,
    LedgerOutbox,
    MakeAudit,
    StreamBounds,
    StreamClaim,
)
from noonbell.ports.runs import Claimed, Decide, LaneClaim, LedgerRuns, Settled
from noonbell.ports.schedules import (
    NO_QUIET_CHANGES,
    Declared,
    LedgerSchedules,
    MakeEdit,
    QuietChanges,
    QuietHoursDrop,
    QuietHoursPut,
    Sample,
    ScheduleChange,
    ScheduleFilter,
    WakeFilter,
)

__all__ = [
    "ALL_ROWS",
    "BOUNDS",
    "LEDGER_TABLES",
    "NO_QUIET_CHANGES",
    "PARTS",
    "AuditFilter",
    "AwayTarget",
    "BackgroundService",
    "Claimed",
    "Clock",
    "Decide",
    "Declared",
    "DocumentFilter",
    "Hold",
    "LaneClaim",
    "Ledger",
    "LedgerAudit",
    "LedgerDocuments",
    "LedgerEngines",
    "LedgerHistory",
    "LedgerKey",
    "LedgerOutbox",
    "LedgerRuns",
    "LedgerSchedules",
    "LedgerTable",
    "MakeAudit",
    "MakeEdit",
    "MakeNotices",
    "Members",
    "PastRun",
    "Pruned",
    "QuietChanges",
    "QuietHoursDrop",
    "QuietHoursPut",
    "Rescue",
    "RowBounds",
    "RunFilter",
    "Sample",
    "ScheduleChange",
    "ScheduleFilter",
    "Settled",
    "StreamBounds",
    "StreamClaim",
    "TableShape",
    "WakeFilter",
]
