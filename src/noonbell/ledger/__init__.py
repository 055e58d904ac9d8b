"""Reading the ledger: `verify_store` checks all of it, `why` explains one moment of it.

Nothing here writes, and nothing here uses the code that makes decisions: both work from the stored rows and the cron
language alone, so that `verify` finds the mistakes of the engine.

The way through `why`: `explanation` finds the epoch and the occurrence of a moment, `occurrence` and `pending` say what
became of it, for `reasons` that the ledger records. The way through `verify`: `schedule_audit` checks the verdicts of a
schedule over its `decided_epochs` and `links`, `row_checks` its own row. Both work on `policies` and `recurrence`.
"""

from noonbell.ledger.verify import Problem, Report, verify_schedules, verify_store
from noonbell.ledger.why import Answer, why, why_schedule

__all__ = ["Answer", "Problem", "Report", "verify_schedules", "verify_store", "why", "why_schedule"]
