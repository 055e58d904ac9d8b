"""The public names of the package, and what importing it costs.

A name added or removed here is a change that users see: it belongs in the changelog.
"""

import json
import subprocess
import sys

import pytest

import noonbell
from tests.patience import PATIENCE_SECONDS

PUBLIC_NAMES = ["NoonbellError", "Scheduler", "Schedules", "__version__", "periodic"]


def modules_loaded_by(statement: str) -> set[str]:
    """What a statement loads in a fresh interpreter, beyond what the interpreter has loaded by itself."""
    program = (
        f"import json, sys; before = set(sys.modules); {statement}; print(json.dumps([*set(sys.modules) - before]))"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=PATIENCE_SECONDS
    )
    return set(json.loads(answer.stdout))


def third_party(modules: set[str]) -> set[str]:
    tops = {name.partition(".")[0] for name in modules}
    # The interpreter's own build facts, named after its platform and so in no list.
    own = {name for name in tops if name.startswith("_sysconfigdata_")}
    return tops - own - sys.stdlib_module_names - {"noonbell"}


def test_the_public_names_are_these() -> None:
    assert sorted(noonbell.__all__) == PUBLIC_NAMES


@pytest.mark.parametrize("name", PUBLIC_NAMES)
def test_each_public_name_is_there(name: str) -> None:
    assert getattr(noonbell, name) is not None
    assert name in dir(noonbell)


def test_a_name_fetched_late_is_the_one_of_its_module() -> None:
    from noonbell.errors import NoonbellError

    assert noonbell.NoonbellError is NoonbellError


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Schedular'"):
        getattr(noonbell, "Schedular")  # noqa: B009 - mypy knows that the plain form cannot work


def test_importing_the_package_loads_none_of_its_parts() -> None:
    loaded = modules_loaded_by("import noonbell")
    assert {name for name in loaded if name.startswith("noonbell")} == {"noonbell"}
    assert not third_party(loaded)
    assert "asyncio" not in loaded


def test_the_cron_language_loads_the_standard_library_only() -> None:
    loaded = modules_loaded_by("import noonbell.cron")
    assert "noonbell.cron.expression" in loaded
    assert not third_party(loaded)
    assert "asyncio" not in loaded
