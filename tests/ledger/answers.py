"""Questions to the ledgers of test_why, and their answers word by word."""

from __future__ import annotations

from typing import Final, NamedTuple


class Question(NamedTuple):
    """A question at a stage of a test, and the answer."""

    stage: str
    task: str
    at: str | None
    now: str
    verdict: str
    text: str


NIGHT: Final = [
    Question(
        "up",
        "sync",
        "2026-11-15T02:05:30",
        "2026-11-15T01:22:30",
        "fired",
        "sync ran for 2026-11-15 02:05 +02:00 (00:05 UTC): it started at 02:05:30 on instance one, 30 s after it "
        "was due, and succeeded at 02:05:31.",
    ),
    Question(
        "up",
        "sync",
        "2026-11-15T02:31",
        "2026-11-15T01:22:30",
        "coalesced",
        "sync did not run by itself for 2026-11-15 02:31 +02:00 (00:31 UTC): it is one of 39 occurrences (02:31 "
        "to 03:09) folded into the run for 03:10, which started at 03:10:21, because the scheduler was down from "
        "02:31 to 03:10:20.",
    ),
    Question(
        "up",
        "sync",
        "2026-11-15T03:10",
        "2026-11-15T01:22:30",
        "fired",
        "sync ran for 2026-11-15 03:10 +02:00 (01:10 UTC): it started at 03:10:21 on instance two, 21 s after it "
        "was due, and failed for good at 03:13:11 (ValueError: no). It was not tried again because 03:13 was due "
        "by then. It also covers 39 occurrences before it (02:31 to 03:09).",
    ),
    Question(
        "up",
        "sync",
        "2026-11-15T03:12",
        "2026-11-15T01:22:30",
        "coalesced",
        "sync did not run by itself for 2026-11-15 03:12 +02:00 (01:12 UTC): it is one of 2 occurrences (03:11 "
        "to 03:12) folded into the run for 03:13, which started at 03:13:11, because a run was in progress (the "
        "one for 03:10, from 03:10:21 to 03:13:11).",
    ),
    Question(
        "up",
        "sync",
        "2026-11-15T03:13",
        "2026-11-15T01:22:30",
        "fired",
        "sync ran for 2026-11-15 03:13 +02:00 (01:13 UTC): it started at 03:13:11, 11 s after it was due, and "
        "succeeded at 03:20:30, after 2 attempts. Attempt by attempt: 1 (03:13:11, instance two) was cut off "
        "when its instance ended; 2 (03:20:21, instance three) as a restart succeeded. It also covers 2 "
        "occurrences before it (03:11 to 03:12).",
    ),
    Question(
        "up",
        "sync",
        "2026-11-15T03:17",
        "2026-11-15T01:22:30",
        "coalesced",
        "sync did not run by itself for 2026-11-15 03:17 +02:00 (01:17 UTC): it is one of 7 occurrences (03:14 "
        "to 03:20) folded into the run for 03:13, which started at 03:13:11, because that run had been cut off "
        "by the end of its instance and was started again.",
    ),
    Question(
        "up",
        "sync",
        "2026-11-15T03:21",
        "2026-11-15T01:22:30",
        "waiting",
        "sync started for 2026-11-15 03:21 +02:00 (01:21 UTC) and waits for its retry at 03:25, after 1 failed "
        "attempt. Attempt by attempt: 1 (03:21, instance three) failed with OSError: x.",
    ),
    Question(
        "up",
        "sync",
        "2026-11-15T01:22:00+00:00",
        "2026-11-15T01:22:30",
        "not decided",
        "sync has not run for 2026-11-15 03:22 +02:00 (01:22 UTC) yet: it has been due for 30 s, and the "
        "scheduler (instance three, up since 03:20:20) has not claimed it. It is not lost: the next poll, or the "
        "next start, answers for it.",
    ),
    Question(
        "up",
        "sync",
        "2026-11-15T04:00",
        "2026-11-15T01:22:30",
        "due later",
        "sync is due at 2026-11-15 04:00 +02:00 (02:00 UTC), in 37 min 30 s.",
    ),
    Question(
        "up",
        "sync",
        None,
        "2026-11-15T01:22:30",
        "not decided",
        "sync has not run for 2026-11-15 03:22 +02:00 (01:22 UTC) yet: it has been due for 30 s, and the "
        "scheduler (instance three, up since 03:20:20) has not claimed it. It is not lost: the next poll, or the "
        "next start, answers for it. The next occurrence is 2026-11-15 03:23 +02:00 (01:23 UTC), in 30 s.",
    ),
    Question(
        "up",
        "hourly",
        None,
        "2026-11-15T01:22:30",
        "fired",
        "hourly ran for 2026-11-15 03:00 +02:00 (01:00 UTC): it started at 03:10:21, 10 min 21 s after it was "
        "due, and succeeded at 03:20:30, after 2 attempts. Attempt by attempt: 1 (03:10:21, instance two) failed "
        "with ValueError: no; 2 (03:20:21, instance three) as a retry succeeded. It started late because the "
        'scheduler was down from 02:31 to 03:10:20. It also covers 1 occurrence before it (02:30). "0,30 '
        '* * * *" was declared at 03:10:20 and took over all that had not been decided by then. The next '
        "occurrence is 2026-11-15 03:30 +02:00 (01:30 UTC), in 7 min 30 s.",
    ),
    Question(
        "up",
        "hourly",
        "2026-11-15T02:15",
        "2026-11-15T01:22:30",
        "no occurrence",
        'hourly was not due at 2026-11-15 02:15 +02:00 (00:15 UTC), because that minute does not match "0,30 * * '
        '* *" in Europe/Kyiv; the occurrence before it is 2026-11-15 02:00 +02:00 (00:00 UTC), the one after it '
        'is 2026-11-15 02:30 +02:00 (00:30 UTC). "0,30 * * * *" was declared at 03:10:20 and took over all that '
        "had not been decided by then.",
    ),
    Question(
        "up",
        "hourly",
        "2026-11-15T02:30",
        "2026-11-15T01:22:30",
        "coalesced",
        "hourly did not run by itself for 2026-11-15 02:30 +02:00 (00:30 UTC): it was folded into the run for "
        '03:00, which started at 03:10:21, because the scheduler was down from 02:31 to 03:10:20. "0,30 * * * *" '
        "was declared at 03:10:20 and took over all that had not been decided by then.",
    ),
    Question(
        "up",
        "hourly",
        "2026-11-15T01:30",
        "2026-11-15T01:22:30",
        "not registered",
        "hourly did not run at 2026-11-15 01:30 +02:00 (2026-11-14 23:30 UTC), because it was not registered "
        "then: it was registered at 2026-11-15 02:00:30 +02:00 (00:00:30 UTC).",
    ),
    Question(
        "up",
        "gone",
        "2026-11-15T03:00",
        "2026-11-15T01:22:30",
        "removed",
        "gone did not run for 2026-11-15 03:00 +02:00 (01:00 UTC): it was removed at 03:10:20, before that was "
        "decided.",
    ),
    Question(
        "up",
        "gone",
        "2026-11-15T03:30",
        "2026-11-15T01:22:30",
        "not registered",
        "gone did not run at 2026-11-15 03:30 +02:00 (01:30 UTC), because it was not registered then: it was "
        "removed at 2026-11-15 03:10:20 +02:00 (01:10:20 UTC).",
    ),
    Question(
        "up",
        "gone",
        None,
        "2026-11-15T01:22:30",
        "fired",
        "gone ran for 2026-11-15 02:30 +02:00 (00:30 UTC): it started at 02:30:30 on instance one, 30 s after it "
        "was due, and succeeded at 02:30:31. Nothing comes next: it was removed at 2026-11-15 03:10:20 +02:00 "
        "(01:10:20 UTC).",
    ),
    Question(
        "stopped",
        "sync",
        "2026-11-15T03:45",
        "2026-11-15T01:50:00",
        "not decided",
        "sync has not run for 2026-11-15 03:45 +02:00 (01:45 UTC) yet: the scheduler is down since 03:40 "
        "(instance three stopped). At the next start one run will answer for all that was due.",
    ),
    Question(
        "stopped",
        "sync",
        "2026-11-15T04:00",
        "2026-11-15T01:50:00",
        "due later",
        "sync is due at 2026-11-15 04:00 +02:00 (02:00 UTC), in 10 min. The scheduler is down since 03:40 "
        "(instance three stopped); it has to be up by then.",
    ),
    Question(
        "stopped",
        "sync",
        "2026-11-15T03:21",
        "2026-11-15T01:50:00",
        "waiting",
        "sync started for 2026-11-15 03:21 +02:00 (01:21 UTC) and waits for its retry at 03:25, after 1 failed "
        "attempt. The scheduler is down since 03:40 (instance three stopped), so it waits for the next start. "
        "Attempt by attempt: 1 (03:21, instance three) failed with OSError: x.",
    ),
    Question(
        "back",
        "gone",
        "2026-11-15T03:45",
        "2026-11-15T02:00:20",
        "not registered",
        "gone did not run at 2026-11-15 03:45 +02:00 (01:45 UTC), because it was not registered then: it was "
        "removed at 2026-11-15 03:10:20 +02:00 (01:10:20 UTC) and registered again at 2026-11-15 04:00:10 +02:00 "
        "(02:00:10 UTC).",
    ),
    Question(
        "claimed",
        "gone",
        "2026-11-15T04:00",
        "2026-11-15T02:00:20",
        "running",
        "gone is running now for 2026-11-15 04:00 +02:00 (02:00 UTC): attempt 1 began at 04:00:11 on instance four.",
    ),
    Question(
        "claimed",
        "sync",
        "2026-11-15T04:01",
        "2026-11-15T02:01:20",
        "not decided",
        "sync has not run for 2026-11-15 04:01 +02:00 (02:01 UTC) yet: the run for 04:00 is in progress since "
        "04:00:11 on instance four. One run for all that was due follows right after it.",
    ),
    Question(
        "restarted",
        "gone",
        "2026-11-15T04:00",
        "2026-11-15T02:10:11",
        "queued",
        "gone is to start again at once for 2026-11-15 04:00 +02:00 (02:00 UTC): it was cut off when its "
        "instance ended. Attempt by attempt: 1 (04:00:11, instance four) was cut off when its instance ended.",
    ),
]

DST: Final = [
    Question(
        "after",
        "night",
        "2026-03-08T02:30",
        "2026-11-02T12:00:00",
        "no such time",
        "night did not run at 02:30 on 2026-03-08, because that time did not exist in America/New_York: the "
        "clocks went forward from 02:00 to 03:00. The occurrence after it was 2026-03-09 01:30 -04:00 (05:30 "
        "UTC).",
    ),
    Question(
        "after",
        "night",
        "2026-11-01T01:30",
        "2026-11-02T12:00:00",
        "twice",
        "01:30 came twice on 2026-11-01 in America/New_York. The first time: night ran for 2026-11-01 01:30 "
        "-04:00 (05:30 UTC): it started at 01:30 on instance one and succeeded at 01:30:01. The second time: "
        "night ran for 2026-11-01 01:30 -05:00 (06:30 UTC): it started at 01:30 on instance one and succeeded at "
        "01:30:01.",
    ),
    Question(
        "after",
        "night",
        "2026-11-01T01:30-05:00",
        "2026-11-02T12:00:00",
        "fired",
        "night ran for 2026-11-01 01:30 -05:00 (06:30 UTC): it started at 01:30 on instance one and succeeded at "
        "01:30:01.",
    ),
    Question(
        "after",
        "night",
        "2027-03-14T02:30",
        "2026-11-02T12:00:00",
        "no such time",
        "night will not run at 02:30 on 2027-03-14, because that time does not exist in America/New_York: the "
        "clocks go forward from 02:00 to 03:00. The occurrence after it is 2027-03-15 01:30 -04:00 (05:30 UTC).",
    ),
    Question(
        "after",
        "night",
        "2026-06-01T01:30",
        "2026-11-02T12:00:00",
        "coalesced",
        "night did not run by itself for 2026-06-01 01:30 -04:00 (05:30 UTC): it is one of 473 occurrences "
        "(2026-03-09 01:30 -04:00 to 2026-10-31 01:30 -04:00) folded into the run for 2026-10-31 02:30 -04:00, "
        "which started at 2026-10-31 08:00 -04:00 on instance one, because the scheduler did not poll in time, "
        "and nothing recorded says why (the machine may have slept, its clock been set, or the program or its "
        "store been held up).",
    ),
]

PLAIN: Final = [
    Question(
        "new",
        "half",
        None,
        "2026-11-15T00:00:31",
        "not decided",
        "half has not run for 2026-11-15 00:00 UTC yet: it has been due for 31 s, and the scheduler (instance "
        "one, up since 00:00:30) has not claimed it. It is not lost: the next poll, or the next start, answers "
        "for it. The next occurrence is 2026-11-15 00:30 UTC, in 29 min 29 s.",
    ),
    Question(
        "later",
        "half",
        "2026-11-15T00:10",
        "2026-11-15T03:00:10",
        "no occurrence",
        'half was not due at 2026-11-15 00:10 UTC, because that minute does not match "0,30 * * * *" in UTC; the '
        "occurrence before it is 2026-11-15 00:00 UTC, the one after it is 2026-11-15 00:30 UTC. A person asked "
        "for a run at 00:10:10; it succeeded.",
    ),
    Question(
        "later",
        "half",
        "2026-11-15T00:30",
        "2026-11-15T03:00:10",
        "fired",
        "half ran for 2026-11-15 00:30 UTC: it started at 00:45:01 on instance two, 15 min 1 s after it was due, "
        "and succeeded at 00:45:03. It started late because the scheduler was down: instance one had crashed, "
        "and the next start was at 00:45.",
    ),
    Question(
        "later",
        "minutely",
        "2026-11-15T00:30",
        "2026-11-15T03:00:10",
        "coalesced",
        "minutely did not run by itself for 2026-11-15 00:30 UTC: it is one of 44 occurrences (00:01 to 00:44) "
        "folded into the run for 00:45, which started at 00:45:01 on instance two, because the scheduler was "
        "down: instance one had crashed, and the next start was at 00:45.",
    ),
    Question(
        "later",
        "half",
        "2026-11-15T02:00",
        "2026-11-15T03:00:10",
        "coalesced",
        "half did not run by itself for 2026-11-15 02:00 UTC: it is one of 4 occurrences (01:00 to 02:30) folded "
        "into the run for 03:00, which started at 03:00 on instance two, because the scheduler did not poll in "
        "time, and nothing recorded says why (the machine may have slept, its clock been set, or the program or "
        "its store been held up).",
    ),
    Question(
        "later",
        "half",
        "2026-11-15T03:00",
        "2026-11-15T03:00:10",
        "fired",
        "half ran for 2026-11-15 03:00 UTC: it started at 03:00 on instance two and succeeded at 03:00:02. It "
        "also covers 4 occurrences before it (01:00 to 02:30).",
    ),
    Question(
        "edited",
        "half",
        "2026-11-15T02:45",
        "2026-11-15T03:10:10",
        "no occurrence",
        'half was not due at 2026-11-15 02:45 UTC, because that minute does not match "0,30 * * * *" in UTC; the '
        "occurrence before it is 2026-11-15 02:30 UTC, the one after it is 2026-11-15 03:00 UTC. Since 03:00 it "
        'is "15 * * * *" in UTC.',
    ),
    Question(
        "handed back",
        "minutely",
        "2026-11-15T03:11",
        "2026-11-15T03:11:10",
        "queued",
        "minutely is to start again at once for 2026-11-15 03:11 UTC: it was claimed and put back before it began.",
    ),
]
