"""Run the tests on every supported Python that is installed, and list the versions that were not found.

    python -m tests.pythons                                       every version in the classifiers of pyproject.toml
    python -m tests.pythons python3.12 /opt/python3.14/bin/python these interpreters

A name on PATH may be a pyenv shim that starts nothing, so each candidate has to report its version. For a version that
is not on PATH, the versions of pyenv are searched as well. Each interpreter gets an environment of its own, .venv-3.N,
with the pins of requirements/dev.txt. Warnings are errors in the tests and in every process that they start.

Exit status: 0 if the tests passed on every interpreter found, 1 otherwise or if none was found.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_REPORT_VERSION = "import ensurepip, sys, venv; print('%d.%d' % sys.version_info[:2])"


def supported() -> list[str]:
    """Return the versions in the classifiers of pyproject.toml, such as "3.11"."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found = [re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", line) for line in project["classifiers"]]
    return [match[1] for match in found if match]


def version_of(interpreter: str) -> str | None:
    """Return the version that an interpreter reports, such as "3.12"; None if it does not start."""
    try:
        answer = subprocess.run(
            [interpreter, "-I", "-c", _REPORT_VERSION], capture_output=True, text=True, check=False, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout.strip() if answer.returncode == 0 else None


def candidates(version: str) -> Iterator[str]:
    """Yield the interpreters that may be of this version: those on PATH, then those of pyenv, the newest first."""
    for folder in os.get_exec_path():
        for name in (f"python{version}", "python3"):
            found = shutil.which(name, path=folder)
            if found:
                yield found
    for root in _pyenv_roots():
        installed = root.glob(f"versions/{version}.*/bin/python")
        yield from map(str, sorted(installed, key=lambda path: _numbers(path.parent.parent.name), reverse=True))


def _pyenv_roots() -> Iterator[Path]:
    if os.environ.get("PYENV_ROOT"):
        yield Path(os.environ["PYENV_ROOT"])
    pyenv = shutil.which("pyenv")
    if pyenv:
        answer = subprocess.run([pyenv, "root"], capture_output=True, text=True, check=False)
        if answer.returncode == 0:
            yield Path(answer.stdout.strip())
    yield Path.home() / ".pyenv"


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", text))


def find(version: str) -> str | None:
    """Return an interpreter of this version, or None."""
    return next((path for path in candidates(version) if version_of(path) == version), None)


def run_tests(version: str, interpreter: str, make: list[str], jobs: int) -> str:
    """Build the environment of a version, run the tests in it and return the result in a few words."""
    environment = {key: value for key, value in os.environ.items() if key not in {"MAKEFLAGS", "MAKELEVEL", "MFLAGS"}}
    stamp = f".venv-{version}/.stamp"
    built = subprocess.run(
        [*make, "--no-print-directory", stamp, f"PYTHON={interpreter}"], cwd=ROOT, env=environment, check=False
    )
    if built.returncode:
        return "installation failed"
    tests = [f".venv-{version}/bin/python", "-m", "pytest", "-n", str(jobs), "--dist", "worksteal", "tests"]
    began = time.monotonic()
    status = subprocess.run(tests, cwd=ROOT, env={**environment, "PYTHONWARNINGS": "error"}, check=False).returncode
    return f"{'passed' if status == 0 else f'failed with status {status}'} in {time.monotonic() - began:.0f} s"


def main() -> None:
    """Read the arguments, run the tests on each interpreter, and print the results."""
    parser = argparse.ArgumentParser(prog="python -m tests.pythons", description="Run the tests on several Pythons.")
    parser.add_argument("--make", default="make", help="the make command that builds the environments")
    parser.add_argument("--jobs", type=int, default=3, help="number of test processes (default: 3)")
    parser.add_argument("--list", action="store_true", help="list the interpreters and run nothing")
    parser.add_argument("interpreters", nargs="*", help="interpreters to use (default: one of each supported version)")
    arguments = parser.parse_args()

    found: dict[str, str | None] = {}
    if arguments.interpreters:
        for interpreter in arguments.interpreters:
            version = version_of(interpreter)
            if version is None:
                parser.error(f"{interpreter} does not start, or lacks the modules venv and ensurepip")
            found[version] = interpreter
    else:
        found = {version: find(version) for version in supported()}

    results: dict[str, str] = {}
    for version, path in found.items():
        print(f"Python {version}: {path or 'not found'}", flush=True)
    if not arguments.list:
        for version, path in found.items():
            if path is not None:
                print(f"--- Python {version}", flush=True)
                results[version] = run_tests(version, path, shlex.split(arguments.make), arguments.jobs)
        print("--- results")
        for version, path in found.items():
            print(f"Python {version}: {results[version] if path else 'not found, not tested'}")
    passed = all(result.startswith("passed") for result in results.values()) and any(found.values())
    sys.exit(0 if passed else 1)


if __name__ == "__main__":
    main()
