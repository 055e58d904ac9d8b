"""The machinery of the mutants, on small samples; the mutants themselves are run by `make test-mutants`."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tests.mutants.mutant import MODULE, ROOT, Mutant, StaleMutantError, find, load, owners, save
from tests.mutants.run import (
    COVERING,
    Outcome,
    Result,
    Worker,
    failed_test,
    outcome_of,
    paths_of,
    problem_of,
    running_test,
    shown_change,
    stages_for,
    write_table,
)

SAMPLE = """\
LIMIT = 3


class Store:
    @cached
    def get(self, key):
        if key > LIMIT:
            return None
        for one in range(3):
            if key > LIMIT:
                return None

        def inner():
            if key > LIMIT:
                return 1

        return inner
"""


def mutant(
    original: str = "if key > LIMIT:", replacement: str = "if key < LIMIT:", ordinal: int = 0, equivalent: str = ""
) -> Mutant:
    return Mutant(
        id="sample-01",
        group="sample",
        file="sample.py",
        function="Store.get",
        operator="ReplaceComparisonOperator_Gt_Lt",
        ordinal=ordinal,
        original=tuple(original.splitlines()),
        replacement=tuple(replacement.splitlines()),
        equivalent=equivalent,
    )


def result(outcome: Outcome, equivalent: str = "") -> Result:
    return Result(mutant(equivalent=equivalent), 7, outcome, "tests/test_a.py::test_b", 1.5)


# --- places -----------------------------------------------------------------------------------------------------------


def test_each_line_belongs_to_its_innermost_definition() -> None:
    found = owners(SAMPLE)
    assert found[0] == MODULE
    assert found[3] == "Store"
    assert set(found[4:11]) == {"Store.get"}  # the decorator is part of the function
    assert set(found[12:15]) == {"Store.get.inner"}
    assert found[16] == "Store.get"


@pytest.mark.parametrize(("ordinal", "line"), [(0, 7), (1, 10)])
def test_the_ordinal_chooses_among_equal_lines_of_a_function(ordinal: int, line: int) -> None:
    chosen = mutant(ordinal=ordinal)
    assert chosen.line_in(SAMPLE) == line
    before, after = SAMPLE.splitlines(), chosen.applied_to(SAMPLE).splitlines()
    assert [number for number, pair in enumerate(zip(before, after, strict=True), start=1) if pair[0] != pair[1]] == [
        line
    ]
    assert after[line - 1] == before[line - 1].replace(">", "<")


def test_a_mutant_applies_after_the_code_has_moved() -> None:
    moved = "import this\n\n" + SAMPLE.replace(
        "        if key > LIMIT:\n            return None\n        for", "        for"
    )
    assert mutant().line_in(moved) == 10


def test_several_lines_are_replaced_by_fewer() -> None:
    changed = mutant("if key > LIMIT:\n    return None", "pass", ordinal=1).applied_to(SAMPLE)
    assert "        for one in range(3):\n            pass\n\n" in changed


def test_lines_can_be_removed() -> None:
    assert mutant("@cached", "").applied_to(SAMPLE) == SAMPLE.replace("    @cached\n", "")


@pytest.mark.parametrize("stale", [mutant(ordinal=2), mutant("if key >= LIMIT:"), mutant("LIMIT = 3")])
def test_a_text_that_is_not_there_is_stale(stale: Mutant) -> None:
    with pytest.raises(StaleMutantError, match="sample-01"):
        stale.applied_to(SAMPLE)


def test_the_indentation_does_not_matter_but_its_shape_does() -> None:
    assert find(SAMPLE, "Store.get", ["if key > LIMIT:", "    return None"]) == [7, 10]
    assert find(SAMPLE, "Store.get", ["if key > LIMIT:", "return None"]) == []


# --- data -------------------------------------------------------------------------------------------------------------


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "mutants.json"
    assert load(path) == []
    stored = [mutant(), mutant("@cached", ""), mutant(equivalent="for a reason")]
    save(stored, path)
    assert load(path) == stored
    assert path.read_text(encoding="utf-8").count("equivalent") == 1


def test_there_are_sixty_mutants_with_tests_that_cover_them() -> None:
    stored = load()
    assert len({one.id for one in stored}) == len(stored) == 60
    assert all(stages_for(one.file) for one in stored)


def test_the_covering_tests_exist() -> None:
    paths = {path for stages in COVERING.values() for stage in stages for path in paths_of(stage)}
    assert [path for path in sorted(paths) if not (ROOT / path).exists()] == []


def test_a_file_without_covering_tests_is_an_error() -> None:
    with pytest.raises(LookupError, match="COVERING"):
        stages_for("web/app.py")


# --- output of pytest -------------------------------------------------------------------------------------------------

FAILED = """\
tests/cron/test_a.py::test_one PASSED                                    [ 50%]
tests/cron/test_a.py::test_two[0 0 * * *-x] FAILED                       [100%]
=========================== short test summary info ============================
FAILED tests/cron/test_a.py::test_two[0 0 * * *-x] - assert 1 == 2
!!!!!!!!!!!!!!!!!!!!!!!!!! stopping after 1 failures !!!!!!!!!!!!!!!!!!!!!!!!!!!
"""


def test_the_failed_test_is_named() -> None:
    assert failed_test(FAILED) == "tests/cron/test_a.py::test_two[0 0 * * *-x]"
    assert failed_test("ERROR tests/cron/test_a.py - NameError: x\n") == "tests/cron/test_a.py"
    assert failed_test("ImportError while loading conftest\nE   NameError: x\n") == "E   NameError: x"
    assert failed_test("") == "no output"


def test_the_running_test_is_named() -> None:
    assert running_test(FAILED.partition(" FAILED")[0]) == "tests/cron/test_a.py::test_two[0 0 * * *-x]"
    assert running_test("collecting ...") == "collection"


def test_only_a_test_that_fails_catches_a_mutant() -> None:
    assert outcome_of(0, "") == outcome_of(5, "") == ("survived", "")
    assert outcome_of(1, FAILED) == ("caught", "tests/cron/test_a.py::test_two[0 0 * * *-x]")
    assert outcome_of(4, "E   NameError: x") == ("caught", "E   NameError: x")
    assert outcome_of(-9, "") == ("unreliable", "pytest was ended by SIGKILL in collection")


# --- a run ------------------------------------------------------------------------------------------------------------


def test_the_change_is_shown_with_its_neighbours() -> None:
    assert shown_change(mutant()) == ("key > LIMIT:", "key < LIMIT:")
    assert shown_change(mutant("a = f(1) if b else c", "a = f(1) if not b else c")) == ("if b else", "if not b else")
    assert shown_change(mutant("@cached", "")) == ("@cached", "")


@pytest.mark.parametrize(
    ("told", "problem"),
    [
        (result("caught"), ""),
        (result("timed out"), ""),
        (result("equivalent", "for a reason"), ""),
        (result("survived"), "write a test"),
        (result("stale"), "make draw-mutants"),
        (result("unreliable"), "sample-01: tests/test_a.py::test_b"),
        (result("caught", "for a reason"), "remove the explanation"),
    ],
)
def test_what_fails_the_run(told: Result, problem: str) -> None:
    assert problem in problem_of(told)
    assert bool(problem) == bool(problem_of(told))


def test_the_table_replaces_the_last_results(tmp_path: Path) -> None:
    path = tmp_path / "mutants.md"
    path.write_text("# Mutants\n\n## Results\n\nold\n", encoding="utf-8")
    for _ in range(2):
        write_table([result("caught"), result("equivalent", "a | b")], path)
    text = path.read_text(encoding="utf-8")
    assert text.startswith("# Mutants\n\n## Results\n")
    assert "old" not in text
    assert text.count("| sample-01 |") == 2
    assert "equivalent: a \\| b" in text


def test_a_worker_writes_into_its_copy_only(tmp_path: Path) -> None:
    worker = Worker(tmp_path, threading.Event())  # which checks that the copy is imported
    stale = worker.test(mutant())
    assert (stale.outcome, stale.line) == ("stale", 0)
