"""A mutant: one small change to the package, stored as the text of the changed lines.

The place is given by the file, the enclosing definition and the text, not by a line number: a mutant still applies
after other code has moved. If the text itself has changed, the mutant no longer applies and has to be drawn again.
"""

from __future__ import annotations

import ast
import json
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "noonbell"
DATA = Path(__file__).with_name("mutants.json")
MODULE = "<module>"


class StaleMutantError(Exception):
    """The text that the mutant replaces is not in the code."""


@dataclass(frozen=True)
class Mutant:
    """One change.

    `file` is relative to the package. `original` and `replacement` are lines without the indentation that they share;
    `ordinal` counts the places in `function` with that text, from 0. `equivalent` explains why no test can catch it.
    """

    id: str
    group: str
    file: str
    function: str
    operator: str
    ordinal: int
    original: tuple[str, ...]
    replacement: tuple[str, ...]
    equivalent: str = ""

    def line_in(self, source: str) -> int:
        """Return the number of the first line that the mutant replaces, from 1."""
        places = find(source, self.function, self.original)
        if len(places) <= self.ordinal:
            raise StaleMutantError(f"{self.id}: {self.file} has no such line in {self.function}: {self.original[0]}")
        return places[self.ordinal]

    def applied_to(self, source: str) -> str:
        """Return the source with the change made."""
        lines = source.splitlines()
        first = self.line_in(source) - 1
        indent = _indent(lines[first : first + len(self.original)])
        lines[first : first + len(self.original)] = [f"{indent}{line}" if line else "" for line in self.replacement]
        return "\n".join(lines) + "\n"


def owners(source: str) -> list[str]:
    """Return the qualified name of the innermost definition for each line, in order."""
    found = [MODULE] * len(source.splitlines())

    def visit(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                name = f"{prefix}{child.name}"
                first = min([child.lineno, *(decorator.lineno for decorator in child.decorator_list)])
                found[first - 1 : child.end_lineno] = [name] * ((child.end_lineno or first) - first + 1)
                visit(child, f"{name}.")
            else:
                visit(child, prefix)

    visit(ast.parse(source), "")
    return found


def find(source: str, function: str, wanted: Sequence[str]) -> list[int]:
    """Return the line numbers at which the wanted lines begin inside a definition, at any indentation."""
    lines, owned_by, size = source.splitlines(), owners(source), len(wanted)
    return [
        index + 1
        for index in range(len(lines) - size + 1)
        if owned_by[index] == function and dedented(lines[index : index + size]) == tuple(wanted)
    ]


def dedented(lines: Sequence[str]) -> tuple[str, ...]:
    """Return the lines without the indentation that they share."""
    return tuple(textwrap.dedent("\n".join(lines)).split("\n"))


def _indent(lines: Sequence[str]) -> str:
    return lines[0][: len(lines[0]) - len(dedented(lines)[0])]


def load(path: Path = DATA) -> list[Mutant]:
    """Read the stored mutants; none if there is no file yet."""
    if not path.exists():
        return []
    rows = json.loads(path.read_text(encoding="utf-8"))
    return [
        Mutant(**{**row, "original": tuple(row["original"]), "replacement": tuple(row["replacement"])}) for row in rows
    ]


def save(mutants: Iterable[Mutant], path: Path = DATA) -> None:
    """Write the mutants, each without an empty explanation."""
    rows = [{key: value for key, value in asdict(mutant).items() if value != ""} for mutant in mutants]
    path.write_text(json.dumps(rows, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
