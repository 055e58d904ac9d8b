"""The same commands on a database and on a service say the same."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import At, StreamInFlight
from tests.store.postgres_server import PostgresServer

HOOK = ("--http", "https://example.com/hook")
FILE = """name = "billing"
[schedules.invoices]
cron = "0 6 1 * *"
action = { kind = "http", url = "https://example.com/invoices", method = "POST" }
[quiet_hours.nights]
name = "nights"
windows = [{ weekdays = [1, 2], from = "22:00", to = "06:00", timezone = "UTC" }]
"""


@pytest.fixture(params=["database", "service"])
def at(request: pytest.FixtureRequest) -> At:
    place: At = request.getfixturevalue("local" if request.param == "database" else "served")
    return place


def plain(text: str) -> str:
    """Without what differs from call to call: ages, ids that were made, addresses."""
    text = re.sub(r"\((now|\d+ s ago|[^()]*min ago|[^()]*h ago)\)|in \d[^\n]*?(s|min|h|d)\b", "<age>", text)
    text = re.sub(r"\d\d:\d\d:\d\d( UTC)?", "<clock>", text)
    return re.sub(r"(sqlite|http)[^\s]*", "<place>", text)


def test_a_schedule_from_its_making_to_its_end(at: At) -> None:
    made = at.said("schedules", "add", "every weekday at 9am in Kyiv", "--name", "report", "--id", "r1", *HOOK)
    assert "read as 0 9 * * 1-5" in made
    assert "At 09:00, Monday to Friday" in made
    assert made.count("09:00:00 EE") == 3
    assert "Schedule report created, with the id r1." in made

    shown = at.data("schedules", "show", "report")
    assert (shown["schedule_id"], shown["spec"], shown["timezone"]) == ("r1", "0 9 * * 1-5", "Europe/Kyiv")
    assert (shown["description"], shown["editable"]) == ("At 09:00, Monday to Friday", True)
    assert len(shown["upcoming"]) == 5
    assert (shown["latest_runs"]["runs"], shown["latest_runs"]["duration_seconds"]) == (0, None)

    edited = at.data("schedules", "edit", "report", "--when", "weekdays at 8:30", "--tag", "morning", "--attempts", "3")
    assert (edited["spec"], edited["timezone"], edited["tags"]) == ("30 8 * * 1-5", "Europe/Kyiv", ["morning"])
    assert edited["retry"]["attempts"] == 3

    assert at.said("schedules", "pause", "report") == "Schedule report paused.\n"
    assert [one["enabled"] for one in at.data("schedules", "list", "--paused")["items"]] == [False]
    assert at.data("schedules", "list", "--enabled")["items"] == []
    assert at.said("schedules", "resume", "r1").startswith("report runs next at ")
    listed = at.said("schedules", "list")
    assert re.search(r"^report +r1 +At 08:30, Monday to Friday +Europe/Kyiv +in ", listed, re.MULTILINE)
    assert at.data("schedules", "rm", "report", "--yes") == {"deleted": "r1", "name": "report"}
    assert at.data("schedules", "list") == {"items": [], "next_cursor": None}


def test_what_is_refused(at: At) -> None:
    at.said("schedules", "add", "every hour", "--name", "hourly", *HOOK)
    assert at.refused("schedules", "show", "hourli") == 'Schedule not found: no id or name "hourli"'
    assert "Did you mean: hourly" in at.run("schedules", "show", "hourli").stderr
    assert 'The name "hourly" is taken' in at.refused("schedules", "add", "every day", "--name", "hourly", *HOOK)
    assert "quiet_hours_policy_id 'nights'" in at.refused("schedules", "edit", "hourly", "--quiet", "nights")
    assert "is of the type one_shot" in at.refused("schedules", "edit", "hourly", "--when", "tomorrow at 5pm")
    assert 'Unknown command "lst"' in at.refused("schedules", "lst")
    assert "Nothing to change" in at.refused("schedules", "edit", "hourly")
    assert "Not a terminal" in at.refused("schedules", "rm", "hourly")


def test_pages_of_a_list(at: At) -> None:
    for name in ("a", "b", "c"):
        at.said("schedules", "add", "every hour", "--name", name, *HOOK)
    first = at.data("schedules", "list", "--limit", "2")
    assert [one["name"] for one in first["items"]] == ["a", "b"]
    rest = at.data("schedules", "list", "--cursor", first["next_cursor"])
    assert ([one["name"] for one in rest["items"]], rest["next_cursor"]) == (["c"], None)
    assert len(at.data("schedules", "list", "--all")["items"]) == 3
    assert [one["name"] for one in at.data("schedules", "list", "--name", "b")["items"]] == ["b"]


def test_quiet_hours(at: At) -> None:
    windows = ("--window", "Mon-Fri 22:00-6:00 Europe/Kyiv", "--window", "2026-12-25 all day UTC to 2026-12-31")
    made = at.said("quiet", "add", "nights", *windows)
    assert "Mon-Fri 22:00-06:00 Europe/Kyiv\n" in made
    assert "2026-12-25 all day UTC to 2026-12-31\n" in made
    at.said("schedules", "add", "every day at 23:30 in Kyiv", "--name", "late", "--quiet", "nights", *HOOK)
    assert "silent: quiet hours" in at.said("schedules", "show", "late", "-n", "7")
    shown = at.data("quiet", "show", "nights")
    assert len(shown["schedules"]) == 1
    assert shown["windows"][0]["weekdays"] == [1, 2, 3, 4, 5]
    edited = at.data("quiet", "edit", "nights", "--window", "daily 1:00-2:00", "--tz", "UTC", "--name", "Nights")
    assert (edited["name"], edited["windows"][0]["weekdays"]) == ("Nights", [0, 1, 2, 3, 4, 5, 6])
    assert re.search(r"^nights +Nights +daily 01:00-02:00 UTC$", at.said("quiet", "list"), re.MULTILINE)
    assert "are used by 1 schedule" in at.refused("quiet", "rm", "nights")
    at.said("schedules", "edit", "late", "--quiet", "none")
    assert at.data("quiet", "rm", "nights") == {"deleted": "nights"}
    assert at.refused("quiet", "show", "nights") == 'Quiet hours not found: "nights"'


def test_channels_rules_monitors_and_secrets(at: At) -> None:
    added = at.said("channels", "add", "ops", "--kind", "webhook", "--set", "url=https://example.com/h")
    assert added.startswith("Channel ops created")
    assert at.said("rules", "add", "failures", "--on", "failed", "--to", "ops").startswith(
        "Rule failures created: failed"
    )
    assert [one["channel_id"] for one in at.data("channels", "list")] == ["ops"]
    assert [(one["rule_id"], one["team"]) for one in at.data("rules", "list")] == [("failures", "default")]
    assert "failures" in at.refused("channels", "rm", "ops")
    assert at.data("rules", "rm", "failures") == {"removed": "failures"}
    assert len(at.data("channels", "key", "ops")) == 1
    assert at.data("channels", "rm", "ops") == {"removed": "ops"}

    monitor = at.data("monitors", "add", "backup", "--id", "backup", "--every", "3600")
    assert monitor["ping_path"] == f"/ping/{monitor['token']}"
    assert at.data("monitors", "ping", "backup", "--exit-code", "3", "--run", "night")["status"] == "down"
    pings, flips = at.data("monitors", "pings", "backup"), at.data("monitors", "flips", "backup")
    assert [(one["kind"], one["exit_code"], one["run"]) for one in pings] == [("fail", 3, "night")]
    assert (flips[0]["was"], flips[0]["status"]) == ("new", "down")
    assert at.data("monitors", "rm", "backup") == {"deleted": "backup"}

    assert at.said("secrets", "set", "TOKEN", stdin="hush-hush-1\n") == "TOKEN of team default is stored, version 1.\n"
    assert [(one["name"], one["team"]) for one in at.data("secrets", "list")] == [("TOKEN", "default")]
    assert at.data("secrets", "rotate") == {"rewrapped": 0, "unreadable": []}
    assert at.data("secrets", "rm", "TOKEN") == {"removed": "TOKEN", "team": "default"}
    assert at.refused("secrets", "rm", "TOKEN") == 'Team "default" has no secret "TOKEN"'
    at.said("schedules", "add", "every hour", "--name", "signed", "--id", "signed", *HOOK)
    first = at.data("signing", "show", "signed")
    assert [one["until"] for one in first] == [None]
    assert len(at.data("signing", "rotate", "signed", "--overlap", "5")) == 2


def test_plan_apply_why_and_verify(at: At, tmp_path: Path) -> None:
    file = tmp_path / "schedules.toml"
    file.write_text(FILE, encoding="utf-8")
    assert at.run("plan", str(file), "--check").exit_code == 2
    shown = at.said("plan", str(file))
    assert "+ invoices" in shown
    assert "Mon,Tue 22:00-06:00 UTC" in shown
    assert at.said("apply", str(file), "--yes").endswith("Applied.\n")
    assert at.data("plan", str(file))["empty"] is True
    assert at.data("schedules", "show", "invoices")["managed_by"] == "file:billing"
    file.write_text(FILE.split("[quiet_hours", maxsplit=1)[0].replace("0 6 1", "0 7 1"), encoding="utf-8")
    assert "The plan deletes file:billing:nights" in at.refused("apply", str(file), "--yes", status=1)
    told = at.data("apply", str(file), "--yes", "--allow-delete")
    assert (told["changed"], told["applied"]) == (1, True)

    why = at.data("why", "invoices", "06:00")
    assert why["schedule_id"] == "invoices"
    assert "invoices" in why["text"]
    assert "is not a time" in at.refused("why", "invoices", "25:00")
    report = at.data("verify")
    assert (report["whole"], report["schedules"], report["problems"]) == (True, 1, [])
    assert at.said("verify", "--from", "2026-01-01", "--to", "2026-01-02").startswith("whole  ")


def test_the_keys_of_the_api(at: At) -> None:
    made = at.data("api-keys", "create", "deploy", "--scope", "write", "--days", "3")
    assert made["key"].startswith("nbk_")
    listed = {one["key_id"]: one for one in at.data("api-keys", "list")}
    assert (listed[made["key_id"]]["name"], listed[made["key_id"]]["scopes"]) == ("deploy", ["write"])
    assert at.data("api-keys", "revoke", made["key_id"]) == {"revoked": made["key_id"], "made_with_it": []}
    assert "nobody" in at.refused("api-keys", "revoke", "nobody")


def test_words_and_data_are_the_same_on_both(local: At, served: StreamInFlight) -> None:
    def told(at: At) -> tuple[list[str], list[Any]]:
        at.said("quiet", "add", "nights", "--window", "daily 22:00-06:00 UTC")
        at.said("schedules", "add", "every 90 seconds", "--name", "tick", "--id", "tick", "--quiet", "nights", *HOOK)
        at.said("monitors", "add", "backup", "--id", "backup", "--cron", "30 2 * * *")
        words = [("schedules", "list"), ("schedules", "show", "tick", "-n", "0"), ("quiet", "list"), ("runs", "list")]
        asked = [*words, ("quiet", "show", "nights"), ("monitors", "list"), ("channels", "list")]
        return [plain(at.said(*one)) for one in asked], [at.data(*one) for one in asked]

    (here, here_data), (there, there_data) = told(local), told(served)
    assert here == there
    changing = {"created_at", "updated_at", "next_run_at", "since", "token", "ping_path"}

    def steady(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: steady(inner) for key, inner in value.items() if key not in changing}
        return [steady(inner) for inner in value] if isinstance(value, list) else value

    assert local.data("why", "tick").keys() == served.data("why", "tick").keys()
    assert json.dumps(steady(here_data), sort_keys=True) == json.dumps(steady(there_data), sort_keys=True)


def test_a_run_on_a_service_is_waited_for_shown_and_counted(served: StreamInFlight) -> None:
    served.said("schedules", "add", "every day at 4am", "--name", "ring", "--callback", "nobody", "--tz", "UTC")
    ended = served.run("schedules", "trigger", "ring", "--wait")
    assert ended.exit_code == 1
    assert "ring  ✗ failed" in ended.stdout
    assert "nobody" in ended.stdout
    shown = served.data("schedules", "show", "ring")
    assert (shown["latest_runs"]["runs"], shown["latest_runs"]["succeeded"]) == (1, 0)
    assert shown["latest_runs"]["duration_seconds"]["p50"] >= 0
    assert "0 of the last 1 succeeded" in served.said("schedules", "show", "ring")
    assert served.data("runs", "show", "ring")["state"] == "failed"
    assert served.data("top")["outcomes"] == {"failed": 1}


@pytest.mark.parametrize("place", ["local", "served"])
def test_a_run_is_queued_behind_another_on_demand(place: str, request: pytest.FixtureRequest) -> None:
    at: At = request.getfixturevalue(place)
    if place == "served":
        at.said("schedules", "add", "every day at 4am", "--name", "ring", "--callback", "nobody", "--tz", "UTC")
        runs = [at.data("schedules", "trigger", "ring", "--queue", "--no-retry")["run_id"] for _ in range(2)]
    else:
        at.said("schedules", "add", "every day at 4am", "--name", "ring", "--callback", "nobody", "--tz", "UTC")
        runs = [at.data("schedules", "trigger", "ring")["run_id"]]
        assert "or queue it" in at.refused("schedules", "trigger", "ring")
        runs.append(at.data("schedules", "trigger", "ring", "--queue", "--no-retry")["run_id"])
    assert len(set(runs)) == 2


def test_on_postgresql(postgres: PostgresServer) -> None:
    at = At(NOONBELL_STORE=asyncio.run(postgres.new_schema()))
    made = at.data("schedules", "add", "every hour", "--name", "hourly", "--create", *HOOK)
    assert at.data("schedules", "show", "hourly")["schedule_id"] == made["schedule_id"]
    assert [one["name"] for one in at.data("schedules", "list")["items"]] == ["hourly"]
    assert at.said("schedules", "pause", "hourly") == "Schedule hourly paused.\n"
    assert at.data("verify")["whole"] is True
    checks = {one["what"]: one["level"] for one in at.data("doctor")["findings"]}
    assert (checks["database"], checks["extra postgres"]) == ("ok", "ok")
    assert "disk" not in checks


@pytest.mark.parametrize("place", ["local", "served"])
def test_a_one_shot_inside_quiet_hours_is_warned_of(place: str, request: pytest.FixtureRequest) -> None:
    at: At = request.getfixturevalue(place)
    at.said("quiet", "add", "nights", "--window", "daily 22:00-06:00 UTC")
    made = at.said(
        "schedules", "add", "2099-01-01 at 23:00", "--tz", "UTC", "--name", "late", "--quiet", "nights", *HOOK
    )
    assert '! "late" is for 2099-01-01T23:00:00+00:00, inside its quiet hours' in " ".join(made.split())
    assert len(at.data("schedules", "edit", "late", "--name", "later")["warnings"]) == 1
    at.said("schedules", "edit", "later", "--when", "2099-01-01 at 12:00")
    edited = at.said("quiet", "edit", "nights", "--window", "daily 11:00-13:00 UTC")
    assert '! "later" is for 2099-01-01T12:00:00+00:00' in " ".join(edited.split())


@pytest.mark.parametrize("place", ["local", "served"])
def test_a_file_that_is_applied_brings_the_same_warnings(
    place: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    at: At = request.getfixturevalue(place)
    at.said("quiet", "add", "nights", "--window", "daily 22:00-06:00 UTC")
    file = tmp_path / "schedules.toml"
    action = 'action = { kind = "callback", name = "nobody" }'
    file.write_text(
        f'name = "f"\n[schedules.once]\nat = "2099-01-01T23:00"\nquiet_hours_policy_id = "nights"\n{action}\n'
    )
    applied = " ".join(at.said("apply", str(file), "--yes").split())
    assert 'is for 2099-01-01T23:00:00+00:00, inside its quiet hours "nights"' in applied


@pytest.mark.parametrize("place", ["local", "served"])
def test_a_file_that_is_applied_warns_of_what_stands_in_the_way_of_runs(
    place: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    at: At = request.getfixturevalue(place)
    file = tmp_path / "schedules.toml"
    callback = '[schedules.s{}]\ncron = "0 9 * * *"\naction = {{ kind = "callback", name = "report" }}\n'
    file.write_text('name = "f"\n' + "".join(callback.format(number) for number in range(50)))
    warnings = at.data("apply", str(file), "--yes")["warnings"]
    assert warnings[-1].startswith('No callback "report" is registered here')
    assert "The same for 49 more schedules: " in warnings[-1]
    engines = [one for one in warnings if one.startswith('No engine of the lane "default" is up')]
    assert len(engines) == (place == "local"), "the service has one"


def test_a_file_with_commands_says_where_they_run(local: At, tmp_path: Path) -> None:
    file = tmp_path / "schedules.toml"
    action = '{ kind = "command", argv = ["/usr/bin/backup", "--full"] }'
    file.write_text(f'name = "f"\n[schedules.a]\ncron = "0 9 * * *"\naction = {action}\n')
    shown = " ".join(local.said("apply", str(file), "--yes").split())
    assert "! Commands run only in an engine that allows them: noonbell serve --command /usr/bin/backup" in shown
