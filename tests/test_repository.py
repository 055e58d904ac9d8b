"""Rules of the repository that no other tool checks: pins, commands, documents, and the purity of the lowest layers."""

import ast
import os
import re
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

import noonbell
from tests.busy import busy_processes
from tests.busy import run as run_busy
from tests.patience import PATIENCE_SECONDS

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "noonbell"
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
SOURCES = sorted(
    path
    for folder in ("src", "tests", "benchmarks", "examples")
    for path in (ROOT / folder).rglob("*.py")
    if path.name not in {"runner.py", "vloop.py"}
)
TARGETS = (
    "help setup run test test-full test-pythons test-lowest test-busy test-mutants draw-mutants lint types imports "
    "check bench bench-cron bench-engine faults lock clean"
).split()
LISTS = ["run", "dev", "bench", "lowest", "mutants"]
PIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*==[A-Za-z0-9.!+]+")


def canonical(name: str) -> str:
    """Names of distributions compare without regard to case and separators."""
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(name: str) -> dict[str, str]:
    lines = (ROOT / "requirements" / f"{name}.txt").read_text(encoding="utf-8").splitlines()
    return {canonical(line.partition("==")[0]): line.partition("==")[2] for line in lines}


def wanted(name: str) -> set[str]:
    lines = (ROOT / "requirements" / f"{name}.in").read_text(encoding="utf-8").splitlines()
    included = [line.removeprefix("-r ").removesuffix(".in") for line in lines if line.startswith("-r ")]
    own = {canonical(re.split(r"[<>=!~]", line)[0]) for line in lines if line and not line.startswith(("#", "-r"))}
    return own.union(*map(wanted, included))


def requirements(lines: list[str]) -> dict[str, str]:
    """The bounds of each requirement in pyproject.toml by canonical name, without references to Noonbell's extras."""
    found = [re.fullmatch(r"([A-Za-z0-9._-]+)(?:\[[^]]*\])?([^;]*)(?:;.*)?", line) for line in lines]
    return {canonical(match[1]): match[2].strip() for match in found if match and match[1] != "noonbell"}


# --- versions ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", LISTS)
def test_pins_are_a_name_and_a_version_and_nothing_else(name: str) -> None:
    lines = (ROOT / "requirements" / f"{name}.txt").read_text(encoding="utf-8").splitlines()
    assert lines
    assert [line for line in lines if not PIN.fullmatch(line)] == []
    assert "noonbell" not in pins(name)


@pytest.mark.parametrize("name", ["run", "dev", "bench", "mutants"])
def test_what_is_asked_for_is_pinned(name: str) -> None:
    assert wanted(name) <= pins(name).keys()


def project() -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return found


def test_what_the_package_needs_is_pinned() -> None:
    needed = requirements(project()["dependencies"])
    assert needed
    assert needed.keys() <= pins("dev").keys()


def test_make_run_installs_the_package_with_the_server_and_nothing_else() -> None:
    extras = project()["optional-dependencies"]
    needed = requirements([*project()["dependencies"], *extras["server"], *extras["uvloop"]])
    assert wanted("run") == needed.keys() | {"editables", "hatchling"}
    assert {"asyncpg", "celery", "redis", "pytest", "mypy"}.isdisjoint(pins("run"))


def test_lists_share_the_versions_of_the_development_list() -> None:
    assert pins("run").items() <= pins("dev").items() <= pins("bench").items()


@pytest.mark.parametrize("name", ["run", "dev"])
def test_lists_contain_the_dependencies_of_their_entries(name: str) -> None:
    # make installs them without dependencies, so a gap would show only when something is imported
    pinned = pins(name)
    installed = {canonical(found.name): found.version for found in metadata.distributions()}
    missing = {}
    for distribution in pinned.keys() & installed.keys():  # the environment of the lowest versions has a part of them
        if installed[distribution] != pinned[distribution]:
            continue
        for line in metadata.requires(distribution) or []:
            needed = Requirement(line)
            if (needed.marker is None or needed.marker.evaluate()) and canonical(needed.name) not in pinned:
                missing[distribution] = line
    assert missing == {}


def test_every_dependency_declares_a_minimum_that_the_lowest_list_has() -> None:
    extras = project()["optional-dependencies"].values()
    bounds = requirements([*project()["dependencies"], *(line for extra in extras for line in extra)])
    lowest = pins("lowest")
    floors = {name: Version(bound.partition(">=")[2].partition(",")[0]) for name, bound in bounds.items()}
    assert {name: Version(lowest[name]) for name in floors} == floors


def test_the_supported_pythons_are_those_of_the_workflow() -> None:
    supported = re.findall(r"Programming Language :: Python :: (3\.\d+)", "\n".join(project()["classifiers"]))
    workflow = (ROOT / ".github" / "workflows" / "tests.yml").read_text(encoding="utf-8")
    matrix = re.search(r"python: \[(.*)\]", workflow)
    assert matrix is not None
    assert re.findall(r"3\.\d+", matrix[1]) == supported
    assert project()["requires-python"] == f">={supported[0]}"


# --- commands ---------------------------------------------------------------------------------------------------------


def test_help_lists_every_target_in_one_line() -> None:
    # The variables of a make that runs these tests would speak into the output of this one.
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("MAKE", "MFLAGS"))}
    answer = subprocess.run(
        ["make", "--no-print-directory"],  # noqa: S607 - make is the one tool the project asks for
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE_SECONDS,
    )
    listed = dict(re.findall(r"^ +make ([a-z-]+) +(\S.*)$", answer.stdout, flags=re.MULTILINE))
    assert set(TARGETS) <= listed.keys()


def test_continuous_integration_runs_the_same_gate() -> None:
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    commands = [line for line in script.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
    assert commands[-1] == "exec make test"


@pytest.mark.parametrize(("command", "status"), [("exit 0", 0), ("exit 3", 3), ("kill -TERM $$", 143)])
def test_busy_returns_the_status_of_its_command_and_leaves_no_process(command: str, status: int) -> None:
    with busy_processes(1) as started:
        assert run_busy(["sh", "-c", command], processes=1) == status
        os.kill(started[0], 0)
    with pytest.raises(ProcessLookupError):
        os.kill(started[0], 0)


def test_hooks_and_workflows_call_targets_that_exist() -> None:
    files = [ROOT / ".pre-commit-config.yaml", *(ROOT / ".github").rglob("*.yml")]
    called = {name for path in files for name in re.findall(r"\bmake ([a-z-]+)", path.read_text(encoding="utf-8"))}
    known = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert "faults" in called
    assert called <= {*known}


def test_the_module_is_the_same_program_as_the_console_script() -> None:
    answer = subprocess.run(
        [sys.executable, "-m", "noonbell", "--version"],
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE_SECONDS,
    )
    assert noonbell.__version__ in answer.stdout


# --- documents --------------------------------------------------------------------------------------------------------


def readme_examples() -> list[tuple[str, str]]:
    """Each Python block of the README with the output that the block after it shows."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)^```\n\n```text\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)


def readme_sessions() -> list[tuple[str, str]]:
    """Each `noonbell` command that the README shows with its output."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return re.findall(r"^```console\n\$ noonbell (.*?)\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)


def run_python(arguments: list[str], folder: Path) -> str:
    environment = {**os.environ, "NO_COLOR": "1", "COLUMNS": "120", "PYTHONWARNINGS": "error"}
    answer = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE_SECONDS,
    )
    return "\n".join(line.rstrip() for line in answer.stdout.strip().splitlines())


def test_the_readme_shows_the_output_of_each_of_its_examples() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(readme_examples()) == text.count("```python") > 0
    assert readme_sessions()


@pytest.mark.parametrize(("program", "shown"), readme_examples())
def test_readme_examples_print_what_the_readme_shows(program: str, shown: str, tmp_path: Path) -> None:
    printed, began = "", -1
    while began != time.time() // 60:  # at the turn of a minute a task of every minute runs twice: try again
        began = int(time.time() // 60)
        folder = tmp_path / str(began)  # a new one: what ran in an earlier try does not run again
        folder.mkdir()
        printed = run_python(["-c", program], folder)
    assert printed == shown.strip()


@pytest.mark.parametrize(("command", "shown"), readme_sessions())
def test_readme_commands_print_what_the_readme_shows(command: str, shown: str, tmp_path: Path) -> None:
    words = re.findall(r'"[^"]*"|\S+', command)
    assert run_python(["-m", "noonbell", *(word.strip('"') for word in words)], tmp_path) == shown.strip()


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_between_documents_lead_somewhere(document: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", document.read_text(encoding="utf-8"))
    local = [link for link in links if not re.match(r"[a-z]+:", link)]
    assert [link for link in local if not (document.parent / link).exists()] == []


def test_each_decision_is_in_the_index() -> None:
    folder = ROOT / "docs" / "decisions"
    index = (folder / "README.md").read_text(encoding="utf-8")
    records = sorted(path.name for path in folder.glob("[0-9]*.md"))
    assert records
    assert re.findall(r"\]\((\d{4}-[a-z0-9-]+\.md)\)", index) == records


def test_the_changelog_has_a_place_for_the_next_change() -> None:
    headings = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert headings[0] == "[Unreleased]"
    assert all(re.fullmatch(r"\[\d+\.\d+\.\d+\] - \d{4}-\d\d-\d\d", heading) for heading in headings[1:])


# --- source -----------------------------------------------------------------------------------------------------------


def imported(path: Path) -> Iterator[str]:
    """The top-level packages that a module imports, wherever in it the import stands."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module.partition(".")[0]


def test_the_pure_layers_use_the_standard_library_only() -> None:
    modules = [*PACKAGE.glob("errors/*.py"), *PACKAGE.glob("cron/**/*.py"), *PACKAGE.glob("timing/**/*.py")]
    assert len(modules) > 3
    allowed = sys.stdlib_module_names | {"noonbell"}
    strays = {str(path.relative_to(ROOT)): set(imported(path)) - allowed for path in modules}
    assert {path: names for path, names in strays.items() if names} == {}


def test_exceptions_from_a_check_carry_their_reason() -> None:
    bare = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in SOURCES
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if re.search(r"#\s*noqa\b(?!: [A-Z0-9, ]+ - \S)|#\s*type:\s*ignore\b(?!\[[a-z, -]+\]  # \S)", line)
    ]
    assert bare == []


def test_ignored_rules_carry_their_reason() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    rules = re.findall(r'^ {4}"[A-Z]+[0-9]*",.*$', text[text.index("\nignore = [") :], flags=re.MULTILINE)
    assert len(rules) > 10
    assert [rule for rule in rules if "# " not in rule] == []
