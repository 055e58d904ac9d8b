"""Tools for testing programs that use Noonbell, and Noonbell itself. Nothing here is imported by the rest of the
package.
"""

from noonbell.testing.faults import Crash, CrashPoint, Faults, FaultyStore
from noonbell.testing.manual_clock import ManualClock, ManualEventLoop
from noonbell.testing.recorder import TraceRecorder
from noonbell.testing.simulation import SimulationResult, simulate
from noonbell.testing.storage_suite import StorageSuite
from noonbell.testing.trace import DeclaredTask, TraceEvent, Violation, check

__all__ = [
    "Crash",
    "CrashPoint",
    "DeclaredTask",
    "Faults",
    "FaultyStore",
    "ManualClock",
    "ManualEventLoop",
    "SimulationResult",
    "StorageSuite",
    "TraceEvent",
    "TraceRecorder",
    "Violation",
    "check",
    "simulate",
]
