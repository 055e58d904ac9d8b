"""Errors of durable schedules, of documents, and of files of schedules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from noonbell.errors.base import NoonbellError, _shown

_MOST_FILE_PROBLEMS: Final = 100


class ScheduleError(NoonbellError):
    """The base class of errors about durable schedules; nothing was changed."""


class ScheduleInvalidError(ScheduleError):
    """A field of a schedule cannot be accepted. `reason` says what would be right, `index` which one of many it is."""

    field: str
    value: object
    reason: str
    index: int | None

    def __init__(self, field: str, value: object, reason: str, index: int | None = None) -> None:
        place = field if index is None else f"[{index}].{field}" if field else f"[{index}]"
        super().__init__(
            f"Invalid schedule: {place}{_shown(value, reason)} {reason}",
            field=field,
            value=value,
            reason=reason,
            index=index,
        )


class ScheduleNotFoundError(ScheduleError):
    """A schedule, a run or a quiet-hours policy was not found."""

    kind: str
    sought: str

    def __init__(self, kind: str, sought: str) -> None:
        super().__init__(f'{kind[:1].upper()}{kind[1:]} not found: "{sought}"', kind=kind, sought=sought)


class DocumentConflictError(NoonbellError):
    """A document is not of the version that was expected. `version` is what it has, 0 where there is none."""

    kind: str
    sought: str
    version: int | None

    def __init__(self, kind: str, sought: str, version: int | None) -> None:
        if version is None:
            text = f'The {kind} "{sought}" is taken; choose another id'
        elif version == 0:
            text = f'The {kind} "{sought}" was deleted in the meantime'
        else:
            text = f'The {kind} "{sought}" has version {version} now; reload it before you change it'
        super().__init__(text, kind=kind, sought=sought, version=version)


class ScheduleExistsError(ScheduleError):
    """An id or a name is taken. Of many that were to be created `written` of them are."""

    field: str
    value: str
    deleted: bool
    written: int = 0

    def __init__(self, field: str, value: str, *, deleted: bool = False) -> None:
        why = "was used by a deleted schedule; ids are never given twice" if deleted else "is taken; choose another"
        super().__init__(f'The {field} "{value}" {why}', field=field, value=value, deleted=deleted)


class QuietHoursInUseError(ScheduleError):
    policy_id: str
    schedules: int

    def __init__(self, policy_id: str, schedules: int) -> None:
        super().__init__(
            f'The quiet hours "{policy_id}" are used by {schedules} schedule(s); take them off those first',
            policyId=policy_id,
            schedules=schedules,
        )


class ScheduleBusyError(ScheduleError):
    """A run is under way; or, with `queued`, so many runs that were asked for are."""

    schedule_id: str
    queued: int | None

    def __init__(self, schedule_id: str, queued: int | None = None) -> None:
        what = f'A run of the schedule "{schedule_id}" is under way'
        remedy = "trigger it again when that has ended, or queue it (queue: true)"
        if queued is not None:
            what, remedy = f'{queued} triggered runs of the schedule "{schedule_id}" are live', "wait for one to end"
        super().__init__(f"{what}; {remedy}", scheduleId=schedule_id, queued=queued)


class ScheduleChangedError(ScheduleError):
    """A schedule, or another `thing`, was to be changed as it was seen, and has been changed since."""

    schedule_id: str

    def __init__(self, schedule_id: str, thing: str = "schedule") -> None:
        super().__init__(
            f'The {thing} "{schedule_id}" was changed in the meantime; reload it before you change it',
            scheduleId=schedule_id,
            thing=thing,
        )


class ScheduleViewError(ScheduleError):
    """A view made by `Schedules.acting` was asked for something that belongs to the whole."""

    def __init__(self, asked: str, reason: str) -> None:
        super().__init__(f"{asked} is refused on a view of Schedules: {reason}", asked=asked, reason=reason)


class ScheduleFileInvalidError(ScheduleError):
    """A file of schedules is invalid. It has the first hundred `problems`, and how many `more` there are.

    Each problem has a `text` with its line and column.
    """

    problems: Sequence[Any]
    more: int

    def __init__(self, problems: Sequence[Any], more: int = 0) -> None:
        shown = problems[:_MOST_FILE_PROBLEMS]
        more += len(problems) - len(shown)
        lines = [problem.text for problem in shown]
        if more:
            lines.append(f"and {more} more problems, which are not listed")
        super().__init__("\n".join(lines), problems=shown, more=more)


class PlanOutdatedError(ScheduleError):
    """The schedules were changed since the plan was made; nothing was applied."""

    schedule_id: str

    def __init__(self, schedule_id: str, reason: str) -> None:
        super().__init__(
            f'The schedule "{schedule_id}" {reason} since the plan was made; nothing was applied, make a new plan',
            scheduleId=schedule_id,
            reason=reason,
        )


class DeletionRefusedError(ScheduleError):
    """The plan deletes schedules or quiet hours, and the caller did not allow deletions."""

    deleted: Sequence[str]

    def __init__(self, deleted: Sequence[str]) -> None:
        super().__init__(f"The plan deletes {', '.join(deleted)}; allow that, or declare them", deleted=deleted)
