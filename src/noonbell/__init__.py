"""Noonbell: a durable scheduler that can account for every minute.

This module has the public names and imports nothing at once. Each name is imported from its module when it is first
used, so `import noonbell` loads no third-party package and no other module. The list is pinned by a test.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from noonbell import periodic
    from noonbell.declarative import Scheduler
    from noonbell.errors import NoonbellError
    from noonbell.schedules import Schedules

__version__ = "0.1.0"

__all__ = ["NoonbellError", "Scheduler", "Schedules", "__version__", "periodic"]

# Public name -> the module it lives in.
_HOMES = {
    "NoonbellError": "noonbell.errors",
    "Scheduler": "noonbell.declarative",
    "Schedules": "noonbell.schedules",
    "periodic": "noonbell.periodic",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(home)
    value: object = module if home == f"{__name__}.{name}" else getattr(module, name)
    # Kept, so that the next use is an ordinary look-up.
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
