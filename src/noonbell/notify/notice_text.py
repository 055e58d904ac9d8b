"""The texts of notices: those of a rule with their fields filled in, or the usual ones.

A text of a rule is plain, with fields in double braces: `{{name}} failed after {{attempts}} attempts`. The fields are
those of FIELDS, nothing is evaluated, and what a fact says is never read as a template again. The result is plain text;
each kind of channel escapes it in its own way, so no error message can put markup into a mail or a chat.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import msgspec

from noonbell.core.instants import moment
from noonbell.notify.channel_limits import Held
from noonbell.notify.current import States
from noonbell.notify.notice_records import Event, Notice

FIELDS: Final = (
    "name", "event", "subject", "subject_id", "team", "tags", "run_id", "scheduled_for", "started_at", "ended_at",
    "duration", "late", "attempts", "count", "error", "link", "at",
)  # fmt: skip

_FIELD: Final = re.compile(r"\{\{\s*([^{}]*?)\s*\}\}")
_MOST_NAMED: Final = 20
_LONGEST_TITLE: Final = 200

# Events that state how things are, and states that need a person.
_STATES: Final[tuple[Event, ...]] = ("failed", "recovered", "succeeded")
_GOOD_EVENTS: Final[tuple[Event, ...]] = ("recovered", "succeeded")
_BAD: Final = ("failing", "down", "late")

_TITLES: Final[dict[tuple[str, Event], str]] = {
    ("schedule", "failed"): "{{name}} failed",
    ("schedule", "succeeded"): "{{name}} succeeded",
    ("schedule", "recovered"): "{{name}} works again",
    ("schedule", "late"): "{{name}} began {{late}} late",
    ("schedule", "missed"): "{{name}} missed {{count}}",
    ("schedule", "slow"): "{{name}} took {{duration}}",
    ("schedule", "undelivered"): "{{name}}: a message was not delivered",
    ("monitor", "undelivered"): "{{name}}: a notice was not delivered",
    ("monitor", "failed"): "{{name}} is down",
    ("monitor", "recovered"): "{{name}} is up again",
    ("monitor", "late"): "{{name}} is late",
    ("lane", "no_engine"): "No engine runs the lane {{name}}",
    ("lane", "recovered"): "An engine runs the lane {{name}} again",
}


class RenderedNotice(msgspec.Struct, frozen=True):
    """A notice in plain words, ready to be escaped. `data` is for programs."""

    id: str
    event: str
    title: str
    text: str
    at: int
    link: str | None
    data: dict[str, object]


def unknown_field(template: str) -> str | None:
    """A field of a template that does not exist, where there is one."""
    return next((name for name in _FIELD.findall(template) if name not in FIELDS), None)


def render(notice: Notice) -> RenderedNotice:
    facts = _facts(notice)
    usual = _TITLES.get((notice.subject, notice.event), "{{name}}: {{event}}")
    title = _in_one_line(notice.title or "", facts) or _in_one_line(usual, facts)
    text = _usual_text(notice, facts) if notice.text is None else _filled(notice.text, facts)
    data: dict[str, object] = {key: value for key, value in facts.items() if value}
    data |= {"count": notice.count, "tags": list(notice.tags)}
    if notice.attempts is not None:
        data["attempts"] = notice.attempts
    return RenderedNotice(notice.id, notice.event, cut(title, _LONGEST_TITLE), text, notice.at, notice.link, data)


def summary_of(channel_id: str, summarised: Sequence[Held], now: int, states: States | None = None) -> RenderedNotice:
    """Return one notice for all that was held back; `states` are the current ones of its subjects."""
    known = {} if states is None else states

    def state_of(held: Held) -> str | None:
        return None if held.subject_id is None else known.get((held.subject, held.subject_id))

    ordered = sorted(summarised, key=lambda held: (state_of(held) not in _BAD, -held.count, held.name))
    total = sum(held.count for held in summarised)
    first = ordered[0]
    title = _titled(first, state_of(first)) if len(ordered) == 1 else f"{total} notices were held back"
    named, rest = ordered[:_MOST_NAMED], ordered[_MOST_NAMED:]
    lines = [f"{held.name} {_said(held)}, {_stretch(held)}{_now(held, state_of(held))}" for held in named]
    if rest:
        bad = len({(held.subject, held.subject_id) for held in rest if state_of(held) in _BAD})
        more = f"; {bad} of them in a bad state now" if known else ""
        lines.append(f"and {sum(held.count for held in rest)} more of {len(rest)} others{more}")
    data: dict[str, object] = {
        "event": "held",
        "count": total,
        "held": [
            {
                "name": held.name,
                "event": held.event,
                "count": held.count,
                "first_at": written(held.first_at),
                "last_at": written(held.last_at),
                "state": state_of(held),
            }
            for held in ordered
        ],
    }
    begin = min(held.first_at for held in summarised)
    return RenderedNotice(
        f"{channel_id}/held/{begin}", "held", cut(title, _LONGEST_TITLE), "\n".join(lines), now, None, data
    )


def render_test(channel_id: str, name: str, now: int) -> RenderedNotice:
    """Return the test notice that `channels test` sends."""
    text = f"This is a test of the channel {name}. Notices arrive here."
    data: dict[str, object] = {"event": "test", "name": name, "at": written(now)}
    return RenderedNotice(f"{channel_id}/test/{now}", "test", "Test from Noonbell", text, now, None, data)


def cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[: longest - 1] + "…"


def written(at: int) -> str:
    return moment(at).isoformat().replace("+00:00", "Z")


def lasting(us: int) -> str:
    """A duration for people: 350 ms, 4.2 s, 3 min 5 s, 2 h 10 min, 3 d 4 h."""
    if us < 1_000_000:
        return f"{us // 1000} ms"
    if us < 60_000_000:
        return f"{us / 1_000_000:.1f} s"
    seconds = us // 1_000_000
    for unit, size, smaller, part in (("d", 86_400, "h", 3_600), ("h", 3_600, "min", 60), ("min", 60, "s", 1)):
        if seconds >= size:
            rest = seconds % size // part
            return f"{seconds // size} {unit} {rest} {smaller}" if rest else f"{seconds // size} {unit}"
    return f"{seconds} s"


def _filled(template: str, facts: dict[str, str]) -> str:
    # in one pass: a name or an error that looks like a field stays what it is
    return _FIELD.sub(lambda found: facts.get(found[1], found[0]), template)


def _in_one_line(template: str, facts: dict[str, str]) -> str:
    return " ".join(_filled(template, facts).split())


def _facts(notice: Notice) -> dict[str, str]:
    started, ended = notice.started_at, notice.ended_at
    many = f"{notice.count} occurrence{'' if notice.count == 1 else 's'}"
    return {
        "name": notice.name,
        "event": notice.event,
        "subject": notice.subject,
        "subject_id": notice.subject_id,
        "team": notice.team,
        "tags": ", ".join(notice.tags),
        "run_id": notice.run_id or "",
        "scheduled_for": "" if notice.scheduled_for is None else written(notice.scheduled_for),
        "started_at": "" if started is None else written(started),
        "ended_at": "" if ended is None else written(ended),
        "duration": "" if started is None or ended is None else lasting(max(ended - started, 0)),
        "late": "" if notice.late_us is None else lasting(notice.late_us),
        "attempts": "" if notice.attempts is None else str(notice.attempts),
        "count": many,
        "error": notice.error or "",
        "link": notice.link or "",
        "at": written(notice.at),
    }


def _usual_text(notice: Notice, facts: dict[str, str]) -> str:
    lines = []
    if notice.event == "missed" and notice.until_at is not None and notice.count > 1:
        lines.append(f"Missed from {facts['scheduled_for']} to {written(notice.until_at)}")
    elif notice.scheduled_for is not None:
        lines.append(f"Scheduled for {facts['scheduled_for']}")
    if notice.late_us is not None and notice.event == "late":
        lines.append(f"Late by {facts['late']}")
    if facts["duration"]:
        lines.append(f"Took {facts['duration']}")
    if notice.attempts is not None and notice.attempts > 1:
        lines.append(f"Attempts: {notice.attempts}")
    if notice.error:
        lines.append(notice.error)
    return "\n".join(lines)


def _said(held: Held) -> str:
    times = f"{held.count} time{'' if held.count == 1 else 's'}"
    if held.event == "missed":
        return f"missed {held.count} more occurrence{'' if held.count == 1 else 's'}"
    verbs = {"late": "was late", "slow": "was slow", "undelivered": "could not deliver a message"}
    verb = verbs.get(held.event, held.event)
    return f"{verb} {times} more"


def _titled(held: Held, state: str | None) -> str:
    """The title of a summary of one thing; it opens with the current state where that is another by now."""
    said = _said(held)
    over = state is not None and held.event in _STATES and (held.event in _GOOD_EVENTS) == (state in _BAD)
    return f"{held.name} is {state} now; it {said} before" if over else f"{held.name} {said}"


def _now(held: Held, state: str | None) -> str:
    return "" if state is None or held.event not in _STATES else f"; {state} now"


def _stretch(held: Held) -> str:
    first, last = moment(held.first_at), moment(held.last_at)
    if held.first_at == held.last_at:
        return f"at {first:%Y-%m-%d %H:%M} UTC"
    return f"from {first:%Y-%m-%d %H:%M} to {last:%Y-%m-%d %H:%M} UTC"
