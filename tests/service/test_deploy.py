"""The files in `deploy/`: they can be read, and they speak of flags, settings and numbers that there are."""

from __future__ import annotations

import configparser
import json
import re
import tomllib
from pathlib import Path
from typing import Any

import click
import yaml
from prometheus_client.parser import text_string_to_metric_families

from noonbell.api.app import PUBLIC
from noonbell.cli.program import program
from noonbell.config import NAMES, Settings, load
from tests.api.conftest import Client, inside

__all__ = ["inside"]  # the fixture

ROOT = Path(__file__).resolve().parent.parent.parent
DEPLOY = ROOT / "deploy"
DOCUMENT = ROOT / "docs" / "deploy.md"
SERVICE_VARIABLES = {f"NOONBELL_{name.upper()}" for name in NAMES}


def read(name: str) -> str:
    return (DEPLOY / name).read_text(encoding="utf-8")


def flags_of(*path: str) -> set[str]:
    """The flags of a command of `noonbell`."""
    found: click.Command = program
    context = click.Context(program)
    for name in path:
        assert isinstance(found, click.Group)
        inner = found.get_command(context, name)
        assert inner is not None, f"there is no command {' '.join(path)}"
        found = inner
    return {flag for parameter in found.params for flag in parameter.opts}


def unit() -> dict[str, list[tuple[str, str]]]:
    """The sections of the systemd unit; a name may come several times in one."""
    sections: dict[str, list[tuple[str, str]]] = {}
    section: list[tuple[str, str]] = []
    for line in read("noonbell.service").splitlines():
        if line.startswith("["):
            section = sections.setdefault(line.strip("[]"), [])
        elif line and not line.startswith("#"):
            name, equals, value = line.partition("=")
            assert equals, line
            section.append((name, value))
    return sections


def test_the_unit_starts_a_command_that_there_is() -> None:
    sections = unit()
    assert set(sections) == {"Unit", "Service", "Install"}
    service = dict(sections["Service"])
    program_path, *arguments = service["ExecStart"].split()
    assert program_path.endswith("/bin/noonbell")
    assert arguments[0] == "serve"
    assert {one for one in arguments if one.startswith("--")} <= flags_of("serve")
    assert service["NoNewPrivileges"] == "yes"
    assert service["User"] not in ("", "root")
    # where the settings put their files, the unit lets them be written
    settings = tomllib.loads(read("noonbell.toml"))
    assert settings["store"].startswith(f"sqlite:////var/lib/{service['StateDirectory']}/")
    assert float(service["TimeoutStopSec"]) > settings["shutdown_seconds"] + 10


def test_a_unit_is_what_a_parser_of_such_files_reads() -> None:
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.read_string(read("noonbell.service"))
    assert parser["Install"]["WantedBy"] == "multi-user.target"


def test_the_settings_of_the_unit_are_accepted() -> None:
    settings = load({}, environ={}, file=DEPLOY / "noonbell.toml")
    assert settings.sources["store"].endswith("line 2")
    assert settings.trusted_proxies == ("127.0.0.1",)


def composed() -> dict[str, Any]:
    document = yaml.safe_load(read("compose.yaml"))
    assert isinstance(document, dict)
    return document


def test_the_composition_holds_together() -> None:
    document = composed()
    services = document["services"]
    assert {"noonbell", "postgres", "redis"} <= services.keys()
    ours = services["noonbell"]
    environment = ours["environment"]
    assert {name for name in environment if name.startswith("NOONBELL_")} <= SERVICE_VARIABLES
    defaults = {name: re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", value) for name, value in environment.items()}
    settings = load({}, environ={name: value for name, value in defaults.items() if value})
    assert settings.store == "postgresql://noonbell@postgres/noonbell"
    assert float(ours["stop_grace_period"].rstrip("s")) > settings.shutdown_seconds + 10
    assert (ROOT / "deploy" / ours["build"]["context"] / ours["build"]["dockerfile"]).resolve() == DEPLOY / "Dockerfile"
    # it can be reached from this machine alone, and whatever is named is declared
    assert all(str(port).startswith("127.0.0.1:") for port in ours["ports"])
    for service in services.values():
        named = {str(volume).partition(":")[0] for volume in service.get("volumes", [])}
        assert {name for name in named if not name.startswith(".")} <= document["volumes"].keys()
        assert set(service.get("secrets", [])) <= document["secrets"].keys()
        assert set(service.get("depends_on", {})) <= services.keys()
    passwords = [environment["PGPASSWORD"], services["postgres"]["environment"]["POSTGRES_PASSWORD"]]
    assert all(re.fullmatch(r"\$\{NOONBELL_DB_PASSWORD:\?.*\}", password) for password in passwords)


def test_the_image_runs_as_nobody_special_and_copies_what_there_is() -> None:
    lines = [line for line in read("Dockerfile").splitlines() if line and not line.startswith("#")]
    last_stage = lines[max(number for number, line in enumerate(lines) if line.startswith("FROM")) :]
    users = [line.split()[1] for line in last_stage if line.startswith("USER")]
    assert users
    assert "root" not in users
    assert 'CMD ["serve"]' in lines
    flags_of("serve")
    (checked,) = re.findall(r"http://127\.0\.0\.1:(\d+)(/\w+)", read("Dockerfile"))
    assert checked[1] in PUBLIC, "the health of a container is asked without a key"
    assert int(checked[0]) == Settings().port
    copied = [part for line in lines if line.startswith("COPY") and "--from" not in line for part in line.split()[1:-1]]
    assert copied
    assert [part for part in copied if not (ROOT / part).exists()] == []
    # and the ignore file lets each of them into the context
    let_in = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert set(copied) <= let_in
    variables = set(re.findall(r"\bNOONBELL_[A-Z_]+(?==)", read("Dockerfile")))
    assert variables
    assert variables <= SERVICE_VARIABLES
    extras = re.findall(r"\[([a-z,]+)\]", read("Dockerfile"))
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {name for names in extras for name in names.split(",")} <= known.keys()


def test_prometheus_asks_with_a_key_that_is_mounted() -> None:
    document = yaml.safe_load(read("prometheus.yml"))
    (job,) = document["scrape_configs"]
    secret = Path(job["authorization"]["credentials_file"]).name
    assert secret in composed()["services"]["prometheus"]["secrets"]
    assert job["static_configs"] == [{"targets": [f"noonbell:{Settings().port}"]}]


async def test_every_number_of_the_dashboard_is_exported(inside: Client) -> None:
    await inside.read.get("/api/v1/schedules")
    scraped = (await inside.read.get("/metrics")).text
    exported = {sample.name for family in text_string_to_metric_families(scraped) for sample in family.samples}
    dashboard = json.loads(read("grafana-dashboard.json"))
    asked = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    asked += [variable["query"] for variable in dashboard["templating"]["list"]]
    named = {name for text in asked for name in re.findall(r"\bnoonbell_\w+", text)}
    assert len(named) > 10
    # a histogram without observations has its buckets all the same; a counter by label exists with its first use
    assert named - exported == set()
    documented = re.findall(r"`(noonbell_\w+)", (ROOT / "docs" / "service.md").read_text(encoding="utf-8"))
    families = {family.name for family in text_string_to_metric_families(scraped)}
    assert {name for name in documented if name not in exported and name not in families} == set()
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])


def test_commands_in_the_document_exist() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    commands = re.findall(r"(?:/bin/noonbell|compose [^\n]*run --rm noonbell) ([^\n|]+)", text)
    assert len(commands) >= 4
    for command in commands:
        words = [word for word in command.split() if not word.startswith(("-", "<", "/", "'", '"'))]
        flags = {word.partition("=")[0] for word in command.split() if word.startswith("--")}
        depth = 2 if words[0] in {"admin", "keys", "api-keys", "config"} else 1
        assert flags <= flags_of(*words[:depth]), command
    for file in re.findall(r"deploy/([\w.-]+)", text):
        assert (DEPLOY / file).exists() or file in (".env", "noonbell_api_key"), file
