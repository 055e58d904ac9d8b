"""Settings: which of several wins, where each came from, and what is said of a wrong one."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from noonbell import config
from noonbell.actions.http.slots import HttpLimits
from noonbell.bootstrap import build
from noonbell.cli.program import program
from noonbell.config import ABOUT, NAMES, Settings, load, shown
from noonbell.errors import SettingsInvalidError


def test_defaults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    settings = load(environ={})
    assert settings == Settings(sources=dict.fromkeys(NAMES, "default"))
    assert settings.address == "http://127.0.0.1:8765"


def test_flags_win_over_the_environment_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "noonbell.toml"
    file.write_text('# mine\nport = 1\nhost = "127.0.0.2"\nlane = "file"\negress_allow = ["10.0.0.7:80"]\n')
    environ = {"NOONBELL_HOST": "127.0.0.3", "NOONBELL_LANE": "environment", "NOONBELL_DEMO": "yes"}
    settings = load({"lane": "flag", "store": None, "commands": ()}, environ=environ, file=file)
    assert (settings.port, settings.host, settings.lane, settings.demo) == (1, "127.0.0.3", "flag", True)
    assert settings.egress_allow == ("10.0.0.7:80",)
    assert settings.sources["port"] == f"{file}, line 2"
    assert settings.sources["host"] == "the variable NOONBELL_HOST"
    assert settings.sources["lane"] == "the flag --lane"
    assert settings.sources["store"] == "default"


def test_the_file_of_the_environment_and_the_one_that_lies_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "noonbell.toml").write_text("port = 1\n")
    (tmp_path / "other.toml").write_text("port = 2\n")
    assert load(environ={}).port == 1
    assert load(environ={"NOONBELL_CONFIG": "other.toml"}).port == 2
    with pytest.raises(SettingsInvalidError, match="cannot be read"):
        load(environ={"NOONBELL_CONFIG": "none.toml"})


@pytest.mark.parametrize(
    ("text", "line", "told"),
    [
        ('port = 1\nsotre = "x"\n', 2, 'did you mean "store"?'),
        ("\n\n[server]\nport = 1\n", 3, "is not known"),
        ("zzz = 1", 1, "known are store, host"),
        ("port = 70000", 1, "whole number from 0 to 65535"),
        ("port = true", 1, "whole number"),
        ("threads = 0", 1, "whole number from 1 to 10000"),
        ("http_slots_per_host = 0", 1, "whole number from 1 to 10000"),
        ('log_level = "loud"', 1, "debug, info, warning, error"),
        ('demo = "perhaps"', 1, "true or false"),
        ('public_url = "bell.example.org"', 1, "https://bell.example.org"),
        ('tasks = "my app"', 1, "package.module"),
        ("egress_allow = [1]", 1, "list of texts"),
        ('store = ""', 1, "not blank"),
        ("shutdown_seconds = -1", 1, "number of seconds"),
        ('trusted_proxies = ["*"]', 1, "'*' is none"),
        ('trusted_proxies = ["10.0.0.7", "proxy.example.org"]', 1, "'proxy.example.org' is none"),
        ('trusted_proxies = ["10.0.0.7/24"]', 1, "10.0.0.0/24"),
        ('trusted_proxies = ["0.0.0.0/0"]', 1, "'0.0.0.0/0' is none"),
        ('trusted_proxies = ["::/0"]', 1, "'::/0' is none"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(tmp_path: Path, text: str, line: int, told: str) -> None:
    file = tmp_path / "x.toml"
    file.write_text(text)
    with pytest.raises(SettingsInvalidError) as caught:
        load(environ={}, file=file)
    assert f"{file}, line {line}" in str(caught.value)
    assert told in str(caught.value)


def test_the_limits_reach_the_engine(tmp_path: Path) -> None:
    environ = {"NOONBELL_HTTP_SLOTS": "7", "NOONBELL_THREADS": "3"}
    settings = load({"store": f"sqlite:///{tmp_path}/n.db", "http_slots_per_host": 2}, environ=environ)
    service = build(settings, environ={})
    assert service.schedules._actions._http.slots.limits == HttpLimits(total=7, per_host=2)
    assert service.schedules._lane._config.threads == 3


@pytest.mark.parametrize("command", ["serve", "worker"])
def test_the_limits_are_options(command: str) -> None:
    told = CliRunner().invoke(program, [command, "--help"]).output
    assert all(option in told for option in ("--http-slots ", "--http-slots-per-host", "--threads"))
    refused = CliRunner().invoke(program, [command, "--threads", "0"])
    assert refused.exit_code != 0
    assert "the flag --threads" in refused.output


def test_what_is_no_toml(tmp_path: Path) -> None:
    file = tmp_path / "x.toml"
    file.write_text("port = = 1")
    with pytest.raises(SettingsInvalidError, match="is not TOML"):
        load(environ={}, file=file)


def test_texts_of_the_environment() -> None:
    environ = {
        "NOONBELL_PORT": "0",
        "NOONBELL_RETENTION_DAYS": "30",
        "NOONBELL_COMMANDS": "/bin/true, any",
        "NOONBELL_SHUTDOWN_SECONDS": "2.5",
        "NOONBELL_APPRISE": "off",
        "NOONBELL_SOMETHING_ELSE": "x",
    }
    settings = load(environ=environ)
    assert (settings.port, settings.retention_days, settings.shutdown_seconds) == (0, 30, 2.5)
    assert settings.commands == ("/bin/true", "any")
    assert settings.allowed_commands is True
    assert Settings(commands=("/bin/true",)).allowed_commands == ("/bin/true",)
    with pytest.raises(SettingsInvalidError, match="the variable NOONBELL_PORT"):
        load(environ={"NOONBELL_PORT": "many"})


def test_every_setting_is_described_and_can_be_read() -> None:
    fields = [name for name in Settings.__struct_fields__ if name != "sources"]
    assert fields == list(ABOUT)
    assert set(config._READ) == set(fields)


@pytest.mark.parametrize(
    ("host", "address"),
    [("0.0.0.0", "http://127.0.0.1:8765"), ("::", "http://[::1]:8765"), ("10.0.0.1", "http://10.0.0.1:8765")],  # noqa: S104 - nothing is bound
)
def test_where_people_reach_it(host: str, address: str) -> None:
    assert Settings(host=host).address == address
    assert Settings(host=host, public_url="https://bell.example.org/").address == "https://bell.example.org"


def test_passwords_in_addresses_are_not_shown() -> None:
    environ = {
        "NOONBELL_STORE": "postgresql://me:swordfish@db/x?password=swordfish",
        "NOONBELL_EGRESS_PROXY": "http://me:swordfish@proxy:3128",
        "NOONBELL_TIMELINE": "rediss://me:swordfish@redis:6379/0",
    }
    told = {name: value for name, value, _ in shown(load(environ=environ))}
    assert told["store"] == "postgresql://***@db/x?password=***"
    assert told["timeline"] == "rediss://***@redis:6379/0"
    assert "swordfish" not in repr(told)
    result = CliRunner(env=environ).invoke(program, ["config", "show"])
    assert result.exit_code == 0
    assert "swordfish" not in result.output
    with pytest.raises(SettingsInvalidError) as caught:
        load(environ={"NOONBELL_STORE": " "})
    assert caught.value.value is None


def test_config_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "noonbell.toml").write_text("port = 9\n")
    result = CliRunner(env={"NOONBELL_LANE": "mine"}).invoke(program, ["config", "show", "--json"])
    told = json.loads(result.output)
    assert told["port"] == {"value": 9, "source": "noonbell.toml, line 1"}
    assert told["lane"] == {"value": "mine", "source": "the variable NOONBELL_LANE"}
    assert list(told) == list(NAMES)
    (tmp_path / "noonbell.toml").write_text("prot = 9\n")
    wrong = CliRunner().invoke(program, ["config", "show", "--json"])
    assert wrong.exit_code == 2
    assert json.loads(wrong.output)["error"]["field"] == "prot"


def test_the_document_has_every_setting_with_its_default() -> None:
    text = (Path(__file__).resolve().parent.parent.parent / "docs" / "service.md").read_text(encoding="utf-8")
    table = re.findall(
        r"^\| `(\w+)` \| (.*?) \| (.*) \|$", text.split("## Settings")[1].split("\n## ")[0], re.MULTILINE
    )
    assert [(name, about) for name, _, about in table] == list(ABOUT.items())
    for name, told, _ in table:
        default = getattr(Settings(), name)
        words = {None: "–", (): "none", True: "true", False: "false"}
        plain = isinstance(default, bool) or default in (None, ())
        expected = words[default] if plain else f"`{default:g}`" if isinstance(default, float) else f"`{default}`"
        assert told == expected, name


def test_the_example_in_the_document_is_accepted(tmp_path: Path) -> None:
    text = (Path(__file__).resolve().parent.parent.parent / "docs" / "service.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"^```toml\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    (tmp_path / "noonbell.toml").write_text(example)
    assert load(environ={}, file=tmp_path / "noonbell.toml").log_format == "json"


def test_the_demo_allows_one_harmless_command_on_loopback() -> None:
    echo = Settings(demo=True).demo_command
    assert echo is not None
    assert echo.endswith("/echo")
    assert Settings(demo=True).allowed_commands == (echo,)
    assert Settings(demo=True, commands=("/bin/ls",)).allowed_commands == ("/bin/ls", echo)
    assert Settings().allowed_commands == ()
    assert Settings(demo=True, host="0.0.0.0").allowed_commands == ()  # noqa: S104 - not bound
