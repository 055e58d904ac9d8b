"""What is wrong in a file is told with its line and column, all of it at once, in TOML and YAML alike."""

from __future__ import annotations

import textwrap
import tomllib
from pathlib import Path

import pytest

from noonbell.errors import ScheduleFileInvalidError
from noonbell.planning import Format, load, loads
from noonbell.planning import declared_values as declared


def problems(text: str, form: Format) -> list[str]:
    with pytest.raises(ScheduleFileInvalidError) as caught:
        loads(textwrap.dedent(text).lstrip("\n"), format=form, source="f", name="n")
    return [problem.text for problem in caught.value.problems]


# Each case: the TOML, the YAML, and what is said of either: its place, and the rest.
CASES = {
    "a bad cron expression": (
        """
        [schedules.report]
        cron = "61 * * * *"
        action = { kind = "callback", name = "x" }
        """,
        """
        schedules:
          report:
            cron: "61 * * * *"
            action: {kind: callback, name: x}
        """,
        [("2:8", "3:11", "schedules.report.cron '61 * * * *' is not a valid cron spec: ")],
    ),
    "an unknown key": (
        """
        [schedules.report]
        every = "15m"
        catch_up_polcy = "skip"
        action = { kind = "callback", name = "x" }
        """,
        """
        schedules:
          report:
            every: 15m
            catch_up_polcy: skip
            action: {kind: callback, name: x}
        """,
        [("3:1", "4:5", "schedules.report.catch_up_polcy is not a key of a schedule; did you mean catch_up_policy?")],
    ),
    "an unknown key at the top": (
        "[schedule.report]\n",
        "schedule: {}\n",
        [("1:2", "1:1", "schedule is not a key of a file of schedules; did you mean schedules?")],
    ),
    "no time and no action": (
        "[schedules.report]\n",
        "schedules:\n  report: {}\n",
        [
            ("1:12", "2:11", "schedules.report has no time; give it one of "),
            ("1:12", "2:3", "schedules.report.action is missing"),
        ],
    ),
    "two times": (
        """
        [schedules.r]
        cron = "0 9 * * *"
        every = 60
        action = { kind = "callback", name = "x" }
        """,
        """
        schedules:
          r:
            cron: 0 9 * * *
            every: 60
            action: {kind: callback, name: x}
        """,
        [
            ("2:1", "3:5", "schedules.r.cron and every cannot both be given"),
            ("3:1", "4:5", "schedules.r.every and cron cannot both be given"),
        ],
    ),
    "several fields of one schedule": (
        """
        [schedules.r]
        at = "2026-13-01T00:00"
        timezone = "Europe/Kiew"
        overlap = "none"
        enabled = "on"
        retry = { attempts = 0, delay_seconds = -1 }
        action = { kind = "callback", name = "x" }
        """,
        """
        schedules:
          r:
            at: 2026-13-01T00:00
            timezone: Europe/Kiew
            overlap: none
            enabled: on
            retry: {attempts: 0, delay_seconds: -1}
            action: {kind: callback, name: x}
        """,
        [
            ("2:6", "3:9", "schedules.r.at '2026-13-01T00:00' is not a valid one_shot spec"),
            ("3:12", "4:15", "schedules.r.timezone 'Europe/Kiew' must be the name of an IANA zone"),
            ("4:11", "5:14", "schedules.r.overlap 'none' must be one of coalesce, skip, allow"),
            ("5:11", "6:14", "schedules.r.enabled 'on' must be True or False"),
            ("6:22", "7:23", "schedules.r.retry.attempts 0 must be a whole number from 1 to 20"),
            ("6:41", "7:41", "schedules.r.retry.delay_seconds -1 must be a number of seconds"),
        ],
    ),
    "quiet hours": (
        """
        [quiet_hours.nights]
        windows = [
          { weekdays = [1, 9], from = "22:00", to = "25:00", timezone = "UTC" },
          { weekday = [1], from = "22:00", to = "06:00", timezone = "Nowhere" },
        ]
        """,
        """
        quiet_hours:
          nights:
            windows:
              - {weekdays: [1, 9], from: 22:00, to: 25:00, timezone: UTC}
              - {weekday: [1], from: 22:00, to: 06:00, timezone: Nowhere}
        """,
        [
            ("3:16", "4:20", "quiet_hours.nights.windows[0].weekdays 9 must be a number from 0 (Sunday)"),
            ("3:45", "4:45", "quiet_hours.nights.windows[0].to '25:00' is not a time of day"),
            ("4:3", "5:9", "quiet_hours.nights.windows[1].weekdays must name a day"),
            ("4:5", "5:10", "quiet_hours.nights.windows[1].weekday is not a known key; did you mean weekdays?"),
            ("4:61", "5:58", "quiet_hours.nights.windows[1].timezone 'Nowhere' is not an IANA zone"),
        ],
    ),
    "defaults": (
        """
        [defaults]
        timezone = "Mars/Olympus"
        cron = "0 9 * * *"
        colour = 3
        [schedules.a]
        every = 60
        action = { kind = "callback", name = "x" }
        [schedules.b]
        every = 60
        action = { kind = "callback", name = "x" }
        """,
        """
        defaults:
          timezone: Mars/Olympus
          cron: 0 9 * * *
          colour: 3
        schedules:
          a: {every: 60, action: {kind: callback, name: x}}
          b: {every: 60, action: {kind: callback, name: x}}
        """,
        [
            ("2:12", "2:13", "defaults.timezone 'Mars/Olympus' must be the name of an IANA zone"),
            ("3:1", "3:3", "defaults.cron is for each schedule to say"),
            ("4:1", "4:3", "defaults.colour is not a key of the defaults; known are "),
        ],
    ),
    "a name for two": (
        """
        [schedules.a]
        every = 60
        name = "same"
        action = { kind = "callback", name = "x" }
        [schedules.b]
        every = 60
        name = "same"
        action = { kind = "callback", name = "x" }
        """,
        """
        schedules:
          a: {every: 60, name: same, action: {kind: callback, name: x}}
          b:
            every: 60
            name: same
            action: {kind: callback, name: x}
        """,
        [("7:8", "5:11", "schedules.b.name 'same' is the name of a too; names of one file differ")],
    ),
    "an action": (
        """
        [schedules.a]
        every = 60
        [schedules.a.action]
        kind = "command"
        argv = ["x", 5]
        """,
        """
        schedules:
          a:
            every: 60
            action:
              kind: command
              argv: [x, 5]
        """,
        [("5:14", "6:17", "schedules.a.action.argv[1] 5 must be a text")],
    ),
    "tables that are none": (
        'name = "two words"\nschedules = 5\n',
        "name: two words\nschedules: 5\n",
        [
            ("1:8", "1:7", "name 'two words' must be letters, digits"),
            ("2:13", "2:12", "schedules 5 must be a table of keys and values"),
        ],
    ),
    "an odd id": (
        '[schedules."a.b"]\nevery = 60\naction = { kind = "callback", nam = "x" }\n',
        "schedules:\n  a.b:\n    every: 60\n    action: {kind: callback, nam: x}\n",
        [("3:37", "4:35", "schedules.\"a.b\".action.nam 'x' is not known; did you mean name?")],
    ),
}


@pytest.mark.parametrize("form", ["toml", "yaml"])
@pytest.mark.parametrize("case", CASES)
def test_each_problem_is_told_with_its_place(case: str, form: Format) -> None:
    in_toml, in_yaml, expected = CASES[case]
    told = problems(in_toml if form == "toml" else in_yaml, form)
    wanted = [f"f:{at_toml if form == 'toml' else at_yaml}: {said}" for at_toml, at_yaml, said in expected]
    assert len(told) == len(wanted), told
    for one, start in zip(sorted(told), sorted(wanted), strict=True):
        assert one.startswith(start)


@pytest.mark.parametrize(
    ("text", "form", "said"),
    [
        ("a = \n", "toml", "f:1:5: is not valid TOML: invalid value"),
        ("[a]\nb = 1\nb = 2\n", "toml", "f:3:6: is not valid TOML: cannot overwrite a value"),
        ('a = "x', "toml", "f:1:7: is not valid TOML: "),
        ("a: [1\nb: 2\n", "yaml", "f:2:2: is not valid YAML: "),
        ("- 1\n", "yaml", "f:1:1: must hold keys and values"),
        ("schedules: !!python/object/apply:os.getcwd []\n", "yaml", "f:1:12: asks for a type, "),
        ("a: 1\n---\nb: 2\n", "yaml", "f:2:1: is not valid YAML: "),
        ("name: \x00\n", "yaml", "f:1:7: is not valid YAML: it has a character that is not allowed"),
    ],
)
def test_what_cannot_be_read(text: str, form: Format, said: str) -> None:
    (told,) = problems(text, form)
    assert told.startswith(said)


def test_a_yaml_key_comes_once_and_merges_are_refused() -> None:
    told = problems(
        """
        name: n
        schedules:
          a: &a
            every: 60
            every: 61
            action: {kind: callback, name: x}
          b:
            <<: *a
            cron: bad
        """,
        "yaml",
    )
    assert [one.partition(" is ")[0] for one in told if "twice" in one] == ["f:5:5: schedules.a.every"]
    assert any(one.startswith("f:8:5: ") and "put what is shared under defaults" in one for one in told)
    assert any(one.startswith("f:9:11: schedules.b.cron 'bad'") for one in told)  # and it goes on


def test_aliases_are_followed_up_to_a_bound() -> None:
    fine = loads(
        "schedules:\n  a: {every: 60, action: &x {kind: callback, name: w}}\n  b: {every: 90, action: *x}\n",
        format="yaml",
        name="n",
    )
    assert fine.schedules["b"].columns.definition == fine.schedules["a"].columns.definition
    bomb = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
        f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 9)
    )
    assert any("aliases followed" in one for one in problems(bomb, "yaml"))
    assert any("too deeply" in one for one in problems("a: &a [*a]\n", "yaml"))
    assert any("too deeply" in one for one in problems("a: " + "[" * 5000 + "]" * 5000, "yaml"))
    assert any("too deeply" in one for one in problems("a = " + "[" * 5000 + "]" * 5000, "toml"))


def test_yaml_says_what_it_looks_like() -> None:
    file = loads(
        """
schedules:
  on:
    cron: 30 9 * * *
    name: "null"
    tags: [no, off, 9:30, 0755, 2026-11-01, 1_000, 0x1F, .inf]
    payload: {whole: 12, part: 1.5, big: 1e3, yes: true, nothing: ~, empty: , text: "12", date: 2026-11-01}
    action: {kind: callback, name: x}
""",
        format="yaml",
        name="n",
    )
    columns = file.schedules["on"].columns
    assert columns.name == "null"
    assert '"tags":["no","off","9:30","0755","2026-11-01","1_000","0x1F",".inf"]' in columns.definition
    assert columns.payload == (
        '{"whole":12,"part":1.5,"big":1000.0,"yes":true,"nothing":null,"empty":null,"text":"12","date":"2026-11-01"}'
    )


def test_a_file_and_its_name(tmp_path: Path) -> None:
    path = tmp_path / "nightly.yml"
    path.write_bytes(b"\xef\xbb\xbfschedules: {a: {every: 1h30m, action: {kind: callback, name: x}}}\n")
    found = load(path)
    assert found.owner == "file:nightly"
    assert found.schedules["a"].columns.spec == "5400"
    path.write_bytes(b"name: n\nschedules: \xff\n")
    with pytest.raises(ScheduleFileInvalidError, match=r"nightly\.yml:2:12: is not UTF-8: byte 0xff"):
        load(path)
    path.rename(tmp_path / "nightly.txt")
    with pytest.raises(ScheduleFileInvalidError, match=r"no ending \.toml"):
        load(tmp_path / "nightly.txt")


def test_times_of_toml_are_times() -> None:
    file = loads(
        """
[quiet_hours.q]
windows = [{ dates = [2026-12-24], from = 18:00:00, to = 22:00:00, timezone = "UTC" }]
[schedules.a]
at = 2026-12-24T18:00:00
start_at = 2026-12-01T00:00:00Z
action = { kind = "callback", name = "x" }
[schedules.b]
at = 2026-12-24T18:00:00+02:00
action = { kind = "callback", name = "x" }
""",
        format="toml",
        name="n",
    )
    assert file.schedules["a"].columns.spec == "2026-12-24T18:00:00"
    assert file.schedules["b"].columns.spec == "2026-12-24T18:00:00+02:00"
    assert '"from":"18:00","to":"22:00"' in file.quiet_hours["file:n:q"].document


def test_numbers_that_json_has_not_are_refused_in_a_payload() -> None:
    text = """
        [schedules.a]
        every = 60
        payload = { fine = 1.5, list = [1, nan], deep = { end = -inf } }
        action = { kind = "callback", name = "x" }
    """
    assert problems(text, "toml") == [
        "f:3:36: schedules.a.payload.list[1] nan is not a number that JSON can hold",
        "f:3:57: schedules.a.payload.deep.end -inf is not a number that JSON can hold",
    ]


def test_the_short_and_the_long_form_are_one() -> None:
    short = '[schedules.a]\nevery = "15m"\n'
    long = '[schedules.a]\ntype = "interval"\nspec = 900\n'
    action = 'action = { kind = "callback", name = "x" }\n'
    one, other = (loads(text + action, format="toml", name="n") for text in (short, long))
    assert one.schedules == other.schedules
    assert one.fingerprint == other.fingerprint
    assert problems('[schedules.a]\ntype = "cron"\nevery = 5\n' + action, "toml") == [
        "f:2:8: schedules.a.type 'cron' must be interval where every is given; leave it out"
    ]


@pytest.mark.parametrize("form", ["toml", "yaml"])
def test_of_thousands_the_first_hundred_are_listed_in_the_order_of_the_file(
    form: Format, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def noting(word: str, *others: object, **more: object) -> list[str]:
        asked.append(word)
        return []

    monkeypatch.setattr(declared, "get_close_matches", noting)
    line = "k{} = 1\n" if form == "toml" else "k{}: 1\n"
    with pytest.raises(ScheduleFileInvalidError) as caught:
        loads("".join(line.format(number) for number in range(5_000)), format=form, source="f", name="n")
    assert [problem.line for problem in caught.value.problems] == list(range(1, 101))
    assert caught.value.more == 4_900
    assert str(caught.value).endswith("\nand 4900 more problems, which are not listed")
    assert len(asked) == 1_000, "hints take the longest, and stop before they cost much"


def test_what_many_schedules_inherit_is_one_problem() -> None:
    text = "[defaults]\ntimezone = 'Nowhere/No'\n" + "".join(
        f"[schedules.s{number}]\nevery = '15m'\naction = {{ kind = 'callback', name = 'x' }}\n" for number in range(999)
    )
    assert [one.partition(" ")[0] for one in problems(text, "toml")] == ["f:2:12:"]


KEYS_OF_MANY_PARTS = {
    "bare": "a" + ".a" * 50_000 + " = 1\n",
    "quoted": "\"a\" . 'b'" + ' . "é"' * 30_000 + " = 1\n",
    "a table": "x = 1\n[a" + ". a" * 50_000 + "]\n",
    "inline": "x = { a" + ".a" * 50_000 + " = 1 }\n",
}


@pytest.mark.parametrize("text", KEYS_OF_MANY_PARTS.values(), ids=KEYS_OF_MANY_PARTS.keys())
def test_a_key_of_very_many_parts_is_not_read(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tomllib, "loads", pytest.fail)
    (found,) = problems(text, "toml")
    assert found.endswith("has a key of more than 20 parts; it is nested too deeply")


def test_keys_below_each_other_are_too_deep_as_well() -> None:
    text = f"[{'.'.join(['a'] * 19)}]\n"
    deep = "a.a.a.a.a.a.a.a.a.a = " + "{ a.a.a.a.a.a.a.a.a.a = " * 6 + "1" + " }" * 6
    assert problems(text, "toml")[0].startswith("f:1:2: a is not a key")
    assert problems(deep, "toml") == ["f:1:1: is nested too deeply"]


def test_dots_in_a_text_are_no_parts_of_a_key() -> None:
    said = "One. Two. Three. " * 4 + "1.2.3.4, 5.6.7.8"
    text = f"[schedules.a]\nevery = '15m'\npayload = '{said}'\naction = {{ kind = 'callback', name = 'x' }}\n"
    assert [*loads(text, format="toml", name="n").schedules] == ["a"]
