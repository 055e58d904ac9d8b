"""A crontab becomes a file of schedules, line by line, or is told why not."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noonbell.planning import ScheduleFile, loads
from noonbell.planning.crontab import Imported, import_crontab


def imported(text: str, *, user_field: bool = False) -> tuple[Imported, ScheduleFile]:
    """What was made of it, and that read again: whatever comes out can be read."""
    found = import_crontab(text, source="crontab", name="jobs", timezone="Europe/Kyiv", user_field=user_field)
    file = loads(found.toml, format="toml")
    assert len(file.schedules) == found.taken
    return found, file


def action(file: ScheduleFile, schedule_id: str) -> dict[str, Any]:
    decoded: dict[str, Any] = msgspec.json.decode(file.schedules[schedule_id].columns.definition)["action"]
    return decoded


@pytest.mark.parametrize(
    ("spec", "posix"),
    [
        ("15 3 * * *", "15 3 * * *"),
        ("*/15 9-17 * jan-mar MON-fri", "0,15,30,45 9-17 * 1-3 1-5"),
        ("0 0 1,15 * 1", "0 0 1,15 * 1"),  # either is enough, in both worlds
        ("0 0 * * 7", "0 0 * * 0"),
        ("10-30/10 */6 * * *", "10,20,30 0,6,12,18 * * *"),
        ("@hourly", "0 * * * *"),
        ("@daily", "0 0 * * *"),
        ("@midnight", "0 0 * * *"),
        ("@weekly", "0 0 * * 0"),
        ("@monthly", "0 0 1 * *"),
        ("@annually", "0 0 1 1 *"),
        ("0 0 */2 * *", "0 0 1,3,5,7,9,11,13,15,17,19,21,23,25,27,29,31 * *"),
    ],
)
def test_times(spec: str, posix: str) -> None:
    found, file = imported(f"{spec}\t/usr/bin/job --now\n")
    assert not found.refused
    columns = file.schedules["job"].columns
    assert (columns.spec, columns.timezone, columns.catch_up_policy) == (posix, "Europe/Kyiv", "skip")
    assert msgspec.json.decode(columns.definition)["overlap"] == "allow"
    assert msgspec.json.decode(columns.definition)["dst"] == "once"
    assert action(file, "job")["command"] == "/usr/bin/job --now"
    assert action(file, "job")["shell"] is True


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("@reboot /bin/x", "is @reboot, which names an event and not a time"),
        ("0 0 */2 * 1 /bin/x", "a day or weekday field that begins with * makes it want both"),
        ("0 0 1 * */2 /bin/x", "a day or weekday field that begins with * makes it want both"),
        ("61 * * * * /bin/x", "the minute field value '61' is out of range"),
        ("30 2 L * * /bin/x", "the day field uses 'L'"),
        ("0~30 * * * * /bin/x", "a random time is not translated"),
        ("0 0 30 2 * /bin/x", "never matches"),
        ("* * * *", "is not a line of a crontab: the times and a command are needed"),
        ("nonsense", "is not a line of a crontab"),
        ("0 5 * * * %only input", "has no command"),
    ],
)
def test_what_cannot_be_said_is_told_and_the_rest_goes_on(line: str, reason: str) -> None:
    found, file = imported(f"5 4 * * * /bin/first\n{line}\n6 4 * * * /bin/last\n")
    assert list(file.schedules) == ["first", "last"]
    ((number, text, said),) = found.refused
    assert (number, text) == (2, line)
    assert reason in said
    assert f"# NOT TRANSLATED, line 2: {line}" in found.toml


def test_settings_hold_for_the_lines_below() -> None:
    found, file = imported(
        """
1 1 * * * one
SHELL=/bin/bash
PATH = "/opt/bin:/bin"
GREETING='hello there'
HOME=/srv/app
MAILTO=ops@example.org
2 2 * * * two
CRON_TZ=America/New_York
TZ=Asia/Tokyo
3 3 * * * three
CRON_TZ=Mars/Olympus
4 4 * * * four
"""
    )
    assert action(file, "one") == {"kind": "command", "shell": True, "command": "one", "timeout_seconds": 2592000}
    assert action(file, "two") == {
        "kind": "command",
        "argv": ["/bin/bash", "-c", "two"],
        "cwd": "/srv/app",
        "timeout_seconds": 2592000,
        "env": {"PATH": "/opt/bin:/bin", "GREETING": "hello there", "HOME": "/srv/app"},
    }
    assert file.schedules["two"].columns.timezone == "Europe/Kyiv"
    assert file.schedules["three"].columns.timezone == "America/New_York"
    assert action(file, "three")["env"]["TZ"] == "Asia/Tokyo"
    assert [remark.said for remark in found.refused] == [
        "line 13: its CRON_TZ Mars/Olympus is not an IANA zone, such as Europe/Kyiv"
    ]
    assert [remark.line for remark in found.notes] == [7, 10]
    assert "notifications" in found.notes[0].reason


def test_a_percent_sign_begins_the_input() -> None:
    _, file = imported('0 9 * * * mail -s "100\\% done" boss%Dear boss,%%all \\% well\n1 1 * * * date +\\%F\n')
    assert action(file, "mail")["command"] == 'mail -s "100% done" boss'
    assert action(file, "mail")["stdin"] == "Dear boss,\n\nall % well\n"
    assert action(file, "date")["command"] == "date +%F"
    assert "stdin" not in action(file, "date")


def test_comments_give_names_and_what_is_switched_off_stays_out() -> None:
    found, file = imported(
        """# m h dom mon dow command
# The nightly backup,
# of everything
15 3 * * * backup
#16 3 * * * not-me
# @reboot nor-me
17 3 * * * plain --job

# far away

18 3 * * * backup
# The nightly backup, of everything
19 3 * * * backup
"""
    )
    assert {key: one.columns.name for key, one in file.schedules.items()} == {
        "backup": "The nightly backup, of everything",
        "plain": "plain --job",
        "backup-2": "backup",
        "backup-3": "The nightly backup, of everything (line 13)",
    }
    assert [(remark.line, remark.reason) for remark in found.notes] == [
        (5, "is commented out, so it was not taken"),
        (6, "is commented out, so it was not taken"),
    ]
    assert "# The nightly backup,\n# of everything\n# line 4: 15 3 * * * backup\n" in found.toml


def test_the_users_of_etc_crontab() -> None:
    found, file = imported(
        "17 *\t* * *\troot\tcd / && run-parts --report /etc/cron.hourly\n@daily www x\n", user_field=True
    )
    assert action(file, "run-parts")["command"] == "cd / && run-parts --report /etc/cron.hourly"
    assert '"tags":["user:root"]' in file.schedules["run-parts"].columns.definition
    assert [remark.reason for remark in found.notes] == [
        "ran as root; here it runs as the user of the engine",
        "ran as www; here it runs as the user of the engine",
    ]
    assert imported("@daily www\n", user_field=True)[0].refused[0].reason.endswith("a user and a command are needed")


def test_delays_and_signs_of_other_crons() -> None:
    found, file = imported(
        "RANDOM_DELAY=10\n5 * * * * hourly\n* * * * * minutely\n-0 5 * * * silent\n5/20 * * * * steps\n"
    )
    assert '"jitter_us":600000000' in file.schedules["hourly"].columns.definition
    assert "jitter" not in file.schedules["minutely"].columns.definition
    assert file.schedules["silent"].columns.spec == "0 5 * * *"
    assert file.schedules["steps"].columns.spec == "5,25,45 * * * *"
    assert [remark.line for remark in found.notes] == [3, 4, 5]


LINES = st.one_of(
    st.text(max_size=40),
    st.builds(
        lambda spec, command: f"{spec} {command}",
        st.sampled_from(["* * * * *", "@daily", "1 2 3 4 5"]),
        st.text(max_size=30),
    ),
    st.builds(
        lambda name, value: f"{name}={value}",
        st.sampled_from(["PATH", "X", "SHELL", "NOONBELL_X"]),
        st.text(max_size=9),
    ),
    st.builds(lambda text: f"# {text}", st.text(max_size=30)),
)


@given(st.lists(LINES, max_size=8), st.booleans())
def test_whatever_comes_in_what_comes_out_can_be_read(lines: list[str], user_field: bool) -> None:
    imported("\n".join(lines), user_field=user_field)
