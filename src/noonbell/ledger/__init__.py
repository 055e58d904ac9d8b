"""Reading the ledger: `verify_store` checks all of it, `why` explains one moment of it.

Nothing here writes, and nothing here uses the code that makes decisions: both work from the stored rows and the cron
language alone, so that `verify` finds the mistakes of the engine.

A newcomer reads `why` → `explanation` → `occurrence` (with `pending` and `reasons`), and `verify` → `schedule_audit`
(with `decided_epochs` and `links`) → `row_checks`. All of it works on `policies` and `recurrence`.
"""

from noonbell.ledger.verify import Problem, Report, verify_schedules, verify_store
from noonbell.ledger.why import Answer, why, why_schedule

__all__ = ["Answer", "Problem", "Report", "verify_schedules", "verify_store", "why", "why_schedule"]
