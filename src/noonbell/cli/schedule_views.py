"""Formats of schedules and runs, as text and as data."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
from rich.text import Text

from noonbell.cli.cli_errors import printable
from noonbell.cli.console_tables import ago, clock, console, print_facts, print_table, seconds_text, state_cell
from noonbell.core.instants import moment
from noonbell.core.records import DECLARED_OWNERS
from noonbell.cron import parse
from noonbell.errors import NoonbellError
from noonbell.language import describe, describe_instant, describe_interval
from noonbell.ledger.explanation_text import counted
from noonbell.schedules.history import Run
from noonbell.schedules.schedule_records import Schedule, Upcoming
from noonbell.schedules.statistics import Statistics
from noonbell.timing import parse_one_shot


def described(schedule: Schedule) -> str:
    """Return the spec in English; the spec itself if it cannot be described."""
    try:
        if schedule.type == "cron":
            return describe(parse(schedule.spec))
        if schedule.type == "interval":
            return describe_interval(int(schedule.spec)).removesuffix(", counted from the last run")
        zone = ZoneInfo(schedule.timezone)
        return describe_instant(moment(parse_one_shot(schedule.spec, zone), zone))
    except (NoonbellError, ValueError, OverflowError, KeyError, OSError):
        return schedule.spec


def schedule_data(schedule: Schedule) -> dict[str, Any]:
    """Return a schedule for programs, the same from a database and from a server."""
    data: dict[str, Any] = msgspec.to_builtins(schedule)
    data["lane"] = schedule.lane or None
    data["description"] = described(schedule)
    data["editable"] = not schedule.managed_by.startswith(DECLARED_OWNERS)
    return data


def run_data(run: Run) -> dict[str, Any]:
    data: dict[str, Any] = msgspec.to_builtins(run)
    data["duration_seconds"] = _seconds(run.duration)
    data["lateness_seconds"] = _seconds(run.lateness)
    return data


def dumped(data: Any) -> str:
    return json.dumps(data, ensure_ascii=False)


# --- schedules --------------------------------------------------------------------------------------------------------


def print_schedules(found: Sequence[Schedule], now: datetime) -> None:
    """Print schedules by name, with the id if the name is ambiguous or the terminal is wide enough."""
    names = Counter(one.name for one in found)
    out = console()
    wide = not out.is_terminal or out.width >= 110
    with_id = wide or max(names.values(), default=0) > 1
    headings = ["name", *(["id"] if with_id else []), "when", *(["zone"] if wide else []), "next", "last run"]
    lines = []
    for one in found:
        line: list[str | Text] = [one.name, *([one.schedule_id] if with_id else [])]
        line += [described(one), *([one.timezone] if wide else [])]
        lines.append([*line, _next(one, now), _last(one, now)])
    print_table(headings, lines, folded=(0, headings.index("when")))


def _next(schedule: Schedule, now: datetime) -> Text:
    if schedule.running:
        return Text("running", "cyan")
    if not schedule.enabled:
        return Text("paused" if schedule.type != "one_shot" else "over", "dim")
    return Text(ago(schedule.next_run_at, now), "green")


def _last(schedule: Schedule, now: datetime) -> Text:
    ended = [(at, state) for at, state in ((schedule.last_success_at, "✓"), (schedule.last_failure_at, "✗")) if at]
    if not ended:
        return Text("-", "dim")
    at, sign = max(ended)
    return Text.assemble((sign, "green" if sign == "✓" else "bold red"), f" {ago(at, now)}")


def statistics_data(counts: Statistics) -> dict[str, Any]:
    """Return the statistics of the latest runs, for programs."""
    spreads = {"duration": counts.duration, "lateness": counts.lateness}
    return {
        "runs": counts.runs,
        "succeeded": counts.succeeded,
        "success_rate": counts.success_rate,
        **{
            f"{name}_seconds": None if one is None else {"p50": _seconds(one.p50), "p95": _seconds(one.p95)}
            for name, one in spreads.items()
        },
        "all_runs": counts.all_runs,
        "all_succeeded": counts.all_succeeded,
    }


def _counted(counts: Statistics | None) -> str | None:
    if counts is None or not counts.runs:
        return None
    text = f"{counts.succeeded} of the last {counts.runs} succeeded"
    if counts.duration is not None:
        text += (
            f", took {seconds_text(_seconds(counts.duration.p50))} (p95 {seconds_text(_seconds(counts.duration.p95))})"
        )
    return text if counts.all_runs == counts.runs else f"{text}; {counts.all_runs} in all"


def print_schedule(
    schedule: Schedule, coming: Sequence[Upcoming], now: datetime, counts: Statistics | None = None
) -> None:
    out = console()
    out.print(Text.assemble((printable(schedule.name), "bold"), ("" if schedule.enabled else "  paused", "yellow")))
    zone = schedule.timezone
    retry = schedule.retry
    tries = "without end" if retry.attempts is None else str(retry.attempts)
    print_facts(
        [
            ("id", schedule.schedule_id),
            ("when", f"{described(schedule)} ({zone})"),
            ("spec", f"{schedule.type}  {schedule.spec}"),
            ("does", action_text(schedule.action)),
            ("payload", None if schedule.payload is None else dumped(schedule.payload)),
            ("running", "now" if schedule.running else None),
            ("runs", _counted(counts)),
            ("last success", _moment(schedule.last_success_at, zone, now)),
            ("last failure", _moment(schedule.last_failure_at, zone, now)),
            ("missed", _catch_up(schedule)),
            ("overlap", schedule.overlap),
            ("attempts", f"{tries}, {retry.delay_seconds:g} s apart, {retry.strategy}" if retry.attempts != 1 else "1"),
            ("quiet hours", schedule.quiet_hours_policy_id),
            ("clock changes", "fires once" if schedule.dst == "once" else None),
            ("from", _moment(schedule.start_at, zone, now)),
            ("until", _moment(schedule.end_at, zone, now)),
            ("jitter", f"up to {schedule.jitter_seconds:g} s" if schedule.jitter_seconds else None),
            ("repeats", "never, at most once" if schedule.at_most_once else None),
            ("tags", ", ".join(schedule.tags)),
            ("team", schedule.team),
            ("belongs to", schedule.managed_by),
            ("changed", _moment(schedule.updated_at, zone, now)),
        ]
    )
    print_coming(coming, zone, now)


def print_coming(coming: Sequence[Upcoming], zone: str, now: datetime) -> None:
    if not coming:
        return
    out = console()
    out.print(Text("  next", "dim"))
    for one in coming:
        late = one.starts_at - one.scheduled_for
        out.print(
            Text.assemble(
                ("    " + clock(one.scheduled_for, zone), "dim" if one.quiet else "green"),
                f"  {ago(one.scheduled_for, now)}",
                (f"  starts {seconds_text(late.total_seconds())} later" if late else "", "dim"),
                ("  silent: quiet hours" if one.quiet else "", "yellow"),
            ),
            soft_wrap=True,
        )


def action_text(action: dict[str, Any]) -> str:
    """Return an action as one line."""
    kind = action.get("kind")
    if kind == "http":
        return f"{action.get('method', 'GET')} {action.get('url', '')}"
    if kind == "command":
        import shlex  # noqa: PLC0415 - rarely needed

        return str(action.get("command")) if action.get("shell") else shlex.join(action.get("argv", []))
    if kind == "callback":
        return f"calls {action.get('name', '')}"
    return f"sends a message to {action.get('to', 'default')}" if kind == "message" else dumped(action)


def _catch_up(schedule: Schedule) -> str:
    if schedule.catch_up_policy == "run_all_capped":
        return f"run_all_capped, {schedule.catch_up_cap} at most"
    return schedule.catch_up_policy


def _moment(at: datetime | None, zone: str, now: datetime) -> str | None:
    return None if at is None else f"{clock(at, zone)}  ({ago(at, now)})"


# --- runs -------------------------------------------------------------------------------------------------------------


def print_runs(found: Sequence[Run], now: datetime, *, names: bool) -> None:
    """Print runs, the latest first. Their ids are long and shown only on a wide terminal, or without one."""
    out = console()
    wide = not out.is_terminal or out.width >= 130
    headings = [*(["schedule"] if names else []), "for", "state", "took", "late", "tries", *(["run"] if wide else [])]
    lines = []
    for one in found:
        by_hand = f"by hand, {ago(one.ended_at or one.scheduled_for, now)}"
        line: list[str | Text] = [one.name] if names else []
        line += [by_hand if one.kind == "manual" else clock(one.scheduled_for)[4:], state_cell(one.state)]
        line += [seconds_text(_seconds(one.duration)), seconds_text(_seconds(one.lateness)), str(one.attempts)]
        lines.append([*line, *([Text(printable(one.run_id), "dim")] if wide else [])])
    print_table(headings, lines, folded=(0, len(headings) - 1) if wide else 0)
    if not wide:
        out.print(Text("The ids of runs are shown by --json, and by a wider terminal.", "dim"))


def print_warnings(warnings: Sequence[str]) -> None:
    for warning in warnings:
        console().print(Text(f"  ! {printable(warning)}", "yellow"))


def print_run(run: Run, now: datetime) -> None:
    out = console()
    out.print(Text.assemble((printable(run.name), "bold"), "  ", state_cell(run.state)))
    print_facts(
        [
            ("run", run.run_id),
            ("schedule", run.schedule_id),
            ("for", "started by hand" if run.kind == "manual" else _moment(run.scheduled_for, "UTC", now)),
            ("began", _moment(run.started_at, "UTC", now)),
            ("ended", _moment(run.ended_at, "UTC", now)),
            ("took", None if run.duration is None else seconds_text(_seconds(run.duration))),
            ("late by", None if run.lateness is None else seconds_text(_seconds(run.lateness))),
            ("waited", f"{seconds_text(run.waited_seconds)} for a free slot" if run.waited_seconds else None),
            ("attempts", str(run.attempts)),
        ]
    )
    for one in run.tried:
        if one is run.first_after_omitted:
            out.print(Text(f"  … {counted(run.attempts_omitted, 'attempt')} omitted", "dim"))
        took = None if one.started_at is None else (one.ended_at - one.started_at).total_seconds()
        out.print(Text.assemble(f"  {one.attempt}. ", state_cell(one.outcome), (f"  {seconds_text(took)}", "dim")))
        print_facts([("   error", one.error), *_detail(one.detail or {})])


def _detail(detail: dict[str, Any]) -> list[tuple[str, str | None]]:
    """Return the detail of an attempt; headers and the like are only in --json."""
    if detail.get("kind") == "http":
        request, response = detail.get("request") or {}, detail.get("response") or {}
        size = f", {response['bytes']} bytes" if "bytes" in response else ""
        cut = "  (cut)" if response.get("cut") else ""
        return [
            ("   request", f"{request.get('method', '')} {request.get('url', '')}".strip()),
            ("   sent", request.get("body") or None),
            ("   answer", f"{response['status']}{size}" if "status" in response else None),
            ("   body", f"{response.get('body') or ''}{cut}"),
        ]
    hidden = ("kind", "attempt", "triggered_by")
    fields = {name: value for name, value in detail.items() if value not in (None, "") and name not in hidden}
    return [
        (f"   {name}", value.rstrip() if isinstance(value, str) else dumped(value)) for name, value in fields.items()
    ]


def run_line(data: dict[str, Any], now: datetime, *, width: int = 24) -> Text:
    """Return the line for a run from a live event."""
    ended = data.get("ended_at")
    at = datetime.fromisoformat(str(ended or data["scheduled_for"]))
    took = ""
    if ended and data.get("started_at"):
        took = seconds_text((at - datetime.fromisoformat(str(data["started_at"]))).total_seconds())
    tries = f"  attempt {data['attempts']}" if int(data.get("attempts") or 1) > 1 else ""
    return Text.assemble(
        (f"{now.astimezone():%H:%M:%S}  ", "dim"),
        Text(f"{printable(str(data['name'])):<{width}.{width}}  "),
        state_cell(str(data["state"])),
        f"  {took}{tries}",
        ("  by hand" if data.get("kind") == "manual" else "", "dim"),
    )


def _seconds(span: timedelta | None) -> float | None:
    return None if span is None else span.total_seconds()
