"""Declared schedules: files that declare them, plans of what a file would change, and the change itself.

    file = load("schedules.toml")
    made = await plan(store, file, now=clock.now())
    await apply(store, made, now=clock.now())

Pure functions and a store; the commands `noonbell plan` and `noonbell apply` call them.
"""

from noonbell.planning.applying import Applied, apply
from noonbell.planning.differences import FieldChange
from noonbell.planning.moves import Moves, moves
from noonbell.planning.places import Problem
from noonbell.planning.plans import Item, Plan, plan
from noonbell.planning.schedule_file import Format, ScheduleFile, load, loads

__all__ = [
    "Applied",
    "FieldChange",
    "Format",
    "Item",
    "Moves",
    "Plan",
    "Problem",
    "ScheduleFile",
    "apply",
    "load",
    "loads",
    "moves",
    "plan",
]
