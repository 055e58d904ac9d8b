"""Reading the ledger: `verify_store` proves it whole, `why` explains one moment of it.

Nothing here writes, and nothing here knows how decisions are made: both work from the stored rows and the cron language
alone, so that a mistake in the engine cannot hide in its own proof.
"""

from noonbell.ledger.verify import Problem, Report, verify_schedules, verify_store
from noonbell.ledger.why import Answer, why, why_schedule

__all__ = ["Answer", "Problem", "Report", "verify_schedules", "verify_store", "why", "why_schedule"]
