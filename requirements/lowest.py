"""Print every direct dependency at its declared minimum, as `name==version` lines.

The minimums are read from `[project]` in pyproject.toml, the extras included. The test tools follow with the versions
of dev.txt: the entries of test.in. `make lock` resolves this list into lowest.txt, which `make test-lowest` installs.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REQUIREMENT = re.compile(r"(?P<name>[A-Za-z0-9._-]+)(?P<extras>\[[^]]*\])?\s*(?P<bounds>[^;]*)")
# The TestClient of the lowest starlette needs httpx, and warns with a newer anyio.
FOR_STARLETTE = {"anyio": "4.10.0", "httpx": "0.28.1"}
FLOOR = re.compile(r">=\s*([0-9][0-9A-Za-z.]*)")


def canonical(name: str) -> str:
    """Return the name of a distribution in its normal form: lower case, separated by hyphens."""
    return re.sub(r"[-_.]+", "-", name).lower()


def floors() -> dict[str, str]:
    """Return the declared minimum of each direct dependency, by canonical name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lines = [*project["dependencies"], *(line for extra in project["optional-dependencies"].values() for line in extra)]
    found: dict[str, str] = {}
    for line in lines:
        parts = REQUIREMENT.match(line)
        if parts is None or canonical(parts["name"]) == project["name"]:
            continue
        floor = FLOOR.search(parts["bounds"])
        if floor is None:
            raise ValueError(f"pyproject.toml: {line!r} declares no minimum version")
        found[canonical(parts["name"])] = floor[1]
    return found


def names(listed: str) -> list[str]:
    """Return the names in a requirements/*.in file, without the files that it includes."""
    lines = (ROOT / "requirements" / listed).read_text(encoding="utf-8").splitlines()
    return [canonical(re.split(r"[<>=!~ ]", line)[0]) for line in lines if line and not line.startswith(("#", "-"))]


def pins(listed: str) -> dict[str, str]:
    """Return the pinned version of each distribution in a requirements/*.txt file."""
    lines = (ROOT / "requirements" / listed).read_text(encoding="utf-8").splitlines()
    return {canonical(name): version for name, _, version in (line.partition("==") for line in lines if line)}


def main() -> None:
    """Print the list."""
    lowest = floors()
    tools = {name: pins("dev.txt")[name] for name in names("test.in") if name not in lowest}
    for name, version in sorted({**lowest, **tools, **FOR_STARLETTE}.items()):
        print(f"{name}=={version}")


if __name__ == "__main__":
    main()
