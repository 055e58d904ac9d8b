"""Limits on what a channel sends: repeats are counted, and a flood is sent as a summary. Pure.

Two limits, each leading to the same place:

- the same event of the same schedule or monitor within the window of its rule is a repeat: it is counted, not sent. A
  notice of a new state (`changed`: it had worked and has failed, or the other way round) is not a repeat: it is sent,
  whatever its window says;
- a channel sends as many notices as its bucket has tokens. The bucket holds a minute's worth and fills evenly.

What is held back goes into one summary: when the window ends, or a minute after the bucket was empty. It states the
state that each subject is in by then, since that may be another than the one that was counted. From a summary
on, a new window runs, so something that keeps failing is reported once per window. A summary takes a token as well.

The state is a plain value that is stored with the channel. It remembers the ids that the last turn of a stream has
handled: what is delivered again after a crash is known then, and neither counted nor sent twice.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from noonbell.notify.notice_records import Event, Notice, Subject

MINUTE: Final = 60_000_000
# More subjects than this are counted together.
MOST_HELD: Final = 200
MOST_WINDOWS: Final = 10_000
# As many messages as a stream hands over in one turn.
MOST_RECENT: Final = 100

Judgement = Literal["send", "hold", "known"]


class Held(msgspec.Struct):
    """The notices of one event of one subject that were held back."""

    name: str
    event: Event
    count: int
    first_at: int
    last_at: int
    due_at: int
    window_us: int
    subject: Subject = "schedule"
    subject_id: str | None = None  # None: of several


class ChannelState(msgspec.Struct):
    """The counts of a channel: what it sent and held back. `windows` has the end of each event's repeat window."""

    lane: str
    channel_id: str
    tokens: float | None = None  # None: the bucket is full
    filled_at: int = 0
    windows: dict[str, int] = {}
    held: dict[str, Held] = {}
    recent: list[str] = []
    # the team and the created_at of the channel: another one may have the same id later
    made_for: tuple[str, int] | None = None

    @property
    def due_at(self) -> int | None:
        """When the next summary is due."""
        return min((held.due_at for held in self.held.values()), default=None)


def judge(state: ChannelState, notice: Notice, now: int, per_minute: int | None) -> Judgement:
    """Decide what to do with a notice, without changing the state."""
    if notice.id in state.recent:
        return "known"
    key = _key(notice)
    if not notice.changed and (key in state.held or state.windows.get(key, now) > now):
        return "hold"
    return "send" if _tokens(state, now, per_minute) >= 1 else "hold"


def note_sent(state: ChannelState, notice: Notice, now: int, per_minute: int | None) -> None:
    """The notice has arrived."""
    _take_token(state, now, per_minute)
    _open_window(state, _key(notice), now, notice.window_us)
    _note_handled(state, notice.id)


def note_held(state: ChannelState, notice: Notice, now: int) -> None:
    """The notice is counted instead of sent."""
    _note_handled(state, notice.id)
    key = _key(notice)
    name, window = notice.name, notice.window_us
    subject_id: str | None = notice.subject_id
    if key not in state.held and len(state.held) >= MOST_HELD:
        key, name, window, subject_id = f"*\n{notice.event}", "others", 0, None
    held = state.held.get(key)
    if held is None:
        # a repeat waits for the end of its window, an overflow for a bucket that has filled
        due_at = now + MINUTE if notice.changed else max(state.windows.get(key, 0), now + MINUTE)
        state.held[key] = Held(
            name, notice.event, notice.count, notice.at, notice.at, due_at, window, notice.subject, subject_id
        )
        return
    held.count += notice.count
    held.first_at = min(held.first_at, notice.at)
    held.last_at = max(held.last_at, notice.at)
    if notice.changed:
        held.due_at = min(held.due_at, now + MINUTE)


def due_for_summary(state: ChannelState, now: int, per_minute: int | None) -> list[Held]:
    """Return what a summary would contain now. It is put off while the bucket is empty."""
    due = [held for held in state.held.values() if held.due_at <= now]
    if due and _tokens(state, now, per_minute) < 1:
        for held in due:
            held.due_at = now + MINUTE // max(per_minute or 1, 1)
        return []
    return due


def note_summarised(state: ChannelState, summarised: list[Held], now: int, per_minute: int | None) -> None:
    """A summary of these has arrived; it begins a new window for each."""
    _take_token(state, now, per_minute)
    for key in [key for key, held in state.held.items() if any(held is one for one in summarised)]:
        _open_window(state, key, now, state.held.pop(key).window_us)


def _key(notice: Notice) -> str:
    key = f"{notice.subject_id}\n{notice.event}"
    # a schedule and a monitor may have one id
    return key if notice.subject == "schedule" else f"{key}\n{notice.subject}"


def _tokens(state: ChannelState, now: int, per_minute: int | None) -> float:
    if per_minute is None:
        return 1.0
    if state.tokens is None:
        return float(per_minute)
    # a clock that was set back fills nothing
    return min(state.tokens + max(now - state.filled_at, 0) * per_minute / MINUTE, float(per_minute))


def _take_token(state: ChannelState, now: int, per_minute: int | None) -> None:
    state.tokens = None if per_minute is None else max(_tokens(state, now, per_minute) - 1, 0.0)
    state.filled_at = now


def _open_window(state: ChannelState, key: str, now: int, window_us: int) -> None:
    state.windows = {one: until for one, until in state.windows.items() if until > now}
    if window_us:
        state.windows[key] = now + window_us
        if len(state.windows) > MOST_WINDOWS:
            del state.windows[min(state.windows, key=state.windows.__getitem__)]


def _note_handled(state: ChannelState, notice_id: str) -> None:
    state.recent.append(notice_id)
    del state.recent[:-MOST_RECENT]
