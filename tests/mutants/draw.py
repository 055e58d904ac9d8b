"""Draw the mutants with the operators of Cosmic Ray: `python -m tests.mutants.draw`.

Stored mutants that still apply are kept; the others are replaced. The same code and the same data give the same draw.
A place is drawn first and then one of the operators that fit there: some places have eleven variants, others one.

Some changes are left out because they say nothing about the tests: annotations and type aliases, options of classes,
bodies of protocols, `==` turned into `is`, and large quantities changed by one.
"""

from __future__ import annotations

import ast
import fnmatch
import random
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from cosmic_ray.ast import ast_nodes, get_ast  # type: ignore[import-not-found]  # installed in .venv-mutants only
from cosmic_ray.mutating import mutate_code  # type: ignore[import-not-found]  # installed in .venv-mutants only
from cosmic_ray.operators.provider import OperatorProvider  # type: ignore[import-not-found]  # as above

from tests.mutants.mutant import PACKAGE, Mutant, StaleMutantError, dedented, find, load, owners, save

SEED: Final = 20261117
PER_GROUP: Final = 10
PER_FUNCTION: Final = 2
PER_FAMILY: Final = 3

# The files of each group, and the functions in them as a regular expression.
GROUPS: Final[dict[str, dict[str, str]]] = {
    "decision": {"core/decide.py": ".*", "core/turns.py": ".*", "core/consuming.py": ".*"},
    "claim": {
        "store/*/claiming.py": ".*",
        "store/*/claim_schedules.py": ".*",
        "store/*/turns.py": ".*",
        "store/memory/runs.py": r".*\.(claim|_quarantine|hand_back|trigger)",
        "timeline/claiming.py": ".*",
        "engine/lane_decisions.py": ".*",
        "engine/lane_jobs.py": ".*",
        "engine/engine.py": r".*\.(_look|_run_now|_on_failed_poll)",
        "engine/unstarted.py": ".*",
    },
    "settle": {
        "store/*/settling.py": ".*",
        "store/*/ending.py": ".*",
        "store/*/slots.py": ".*",
        "store/*/slot_ends.py": ".*",
        "store/memory/runs.py": r".*\.(settle|_woken|_settle|_mine)",
        "engine/settling.py": ".*",
        "engine/engine.py": r".*\._on_written",
        "engine/execution.py": r".*\.(_on_start|_execute|_on_raised|_hand_back)",
        "engine/ends.py": ".*",
        "engine/in_flight.py": ".*",
    },
    "egress": {"actions/egress/*.py": ".*"},
    "access": {"access/*.py": ".*"},
    "cron": {"cron/*.py": ".*"},
}

# They need arguments, which only a person could choose.
_WITH_ARGUMENTS: Final = {"VariableReplacer", "VariableInserter"}
_TYPING_DECORATORS: Final = {"overload", "override", "runtime_checkable"}


@dataclass(frozen=True)
class _Variant:
    """An operator at a place; `occurrence` is how Cosmic Ray counts the places of an operator in a file."""

    operator: str
    occurrence: int

    @property
    def family(self) -> str:
        return self.operator.split("_")[0]


class _File:
    """A source file with the variants at each of its places."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.source = (PACKAGE / name).read_text(encoding="utf-8")
        self.owners = owners(self.source)
        self._tree = ast.parse(self.source)
        self._left_out = list(_left_out(self._tree))
        self._normal = ast.dump(self._tree)
        self.places = self._places()

    def _places(self) -> dict[tuple[Any, Any], list[_Variant]]:
        nodes = list(ast_nodes(get_ast(self.source)))
        lines = self.source.splitlines()
        found: dict[tuple[Any, Any], list[_Variant]] = defaultdict(list)
        for name, operator in _operators().items():
            occurrence = 0
            for node in nodes:
                for start, end in operator.mutation_positions(node):
                    line = lines[start[0] - 1]
                    fits = _fits(name, line[: start[1]], line[start[1] : end[1]], line[end[1] :])
                    if fits and not any(first <= start < last for first, last in self._left_out):
                        found[start, end].append(_Variant(name, occurrence))
                    occurrence += 1
        return found

    def mutant(self, variant: _Variant, group: str) -> Mutant | None:
        """Return the change as a mutant without an id; None if it is no change, or no valid code."""
        changed = mutate_code(self.source, _operators()[variant.operator], variant.occurrence)
        try:
            if changed is None or ast.dump(ast.parse(changed)) == self._normal:
                return None
        except SyntaxError:
            return None
        before, after = self.source.splitlines(), changed.splitlines()
        first = next(index for index, (old, new) in enumerate(zip(before, after, strict=False)) if old != new)
        last = 1
        while before[-last] == after[-last] and len(before) - last > first and len(after) - last >= first:
            last += 1
        original, replacement = before[first : len(before) - last + 1], after[first : len(after) - last + 1]
        # the shared indentation is that of the original; a change never reaches to the left of it
        cut = len(original[0]) - len(dedented(original)[0])
        function = self.owners[first]
        made = Mutant(
            id="",
            group=group,
            file=self.name,
            function=function,
            operator=variant.operator,
            ordinal=find(self.source, function, dedented(original)).index(first + 1),
            original=dedented(original),
            replacement=tuple(re.sub(r"(?<=[\[({]) (?=-?\d)", "", line[cut:]) for line in replacement),
        )
        return made if ast.dump(ast.parse(made.applied_to(self.source))) == ast.dump(ast.parse(changed)) else None


def _operators() -> dict[str, Any]:
    provider = OperatorProvider()
    return {name: provider[name]() for name in provider if name not in _WITH_ARGUMENTS and not _is_identity(name)}


def _is_identity(name: str) -> bool:
    """Whether the operator turns equality into identity or back, which for strings and small numbers is no change."""
    found = re.fullmatch(r"ReplaceComparisonOperator_(\w+)_(\w+)", name)
    return found is not None and (found[1] in {"Is", "IsNot"}) != (found[2] in {"Is", "IsNot"})


def _fits(operator: str, before: str, text: str, after: str) -> bool:
    """Whether the operator may be used at a place of a line: it takes each star and each part of a name for its own."""
    if operator == "NumberReplacer":
        return "_" not in text  # a quantity such as 100_000: one more or less is tuning
    if operator == "ExceptionReplacer":
        return text.isidentifier() and not before.endswith(".") and not after.startswith(".")
    return not (text in {"*", "/"} and after.startswith((",", ")")))  # in a list of parameters


def _left_out(tree: ast.Module) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """Yield the spans in which nothing is drawn."""
    for node in ast.walk(tree):
        for part in _parts_left_out(node):
            assert part.end_lineno is not None
            assert part.end_col_offset is not None
            yield (part.lineno, part.col_offset), (part.end_lineno, part.end_col_offset)
    for statement in tree.body:  # an alias such as `Address = IPv4Address | IPv6Address`
        if isinstance(statement, ast.Assign) and _is_type(statement.value):
            yield (statement.lineno, 0), (statement.lineno + 1, 0)


def _parts_left_out(node: ast.AST) -> Sequence[ast.expr | ast.stmt]:
    match node:
        case ast.arg(annotation=ast.expr() as annotation) | ast.AnnAssign(annotation=annotation):
            return [annotation]
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            typing = [one for one in node.decorator_list if isinstance(one, ast.Name) and one.id in _TYPING_DECORATORS]
            return [*typing, *([node.returns] if node.returns else [])]
        case ast.ClassDef():
            # the body of a protocol is never called; options are `frozen=True` and the like
            names = {ast.unparse(base).partition("[")[0].rpartition(".")[2] for base in node.bases}
            return [
                *node.decorator_list,
                *(option.value for option in node.keywords),
                *(node.body if "Protocol" in names else ()),
            ]
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return [node]
        case ast.Assign(targets=[ast.Name(id="__all__")]):
            return [node]
        case _:
            return []


def _is_type(node: ast.expr) -> bool:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return all(_is_type(side) or _is_type_name(side) for side in (node.left, node.right))
    return isinstance(node, ast.Subscript)


def _is_type_name(node: ast.expr) -> bool:
    return isinstance(node, ast.Name | ast.Attribute) or (isinstance(node, ast.Constant) and node.value is None)


def _files_of(group: str) -> Iterator[tuple[_File, str]]:
    names = sorted(path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py"))
    for pattern, functions in GROUPS[group].items():
        matching = fnmatch.filter(names, pattern)
        if not matching:
            raise SystemExit(f"No file matches {pattern}: adapt GROUPS in tests/mutants/draw.py")
        for name in matching:
            yield _File(name), functions


def draw(group: str, kept: Sequence[Mutant]) -> list[Mutant]:
    """Return the mutants of a group: those that are kept, and new ones for the ids that are missing."""
    made = {mutant.id: mutant for mutant in kept}
    missing = [name for name in (f"{group}-{number:02d}" for number in range(1, PER_GROUP + 1)) if name not in made]
    if not missing:
        return sorted(made.values(), key=lambda mutant: mutant.id)
    places = [
        (file, place)
        for file, functions in _files_of(group)
        for place in sorted(file.places)
        if re.fullmatch(functions, file.owners[place[0][0] - 1])
    ]
    chance = random.Random(f"{SEED} {group}")
    chance.shuffle(places)
    for file, place in places:
        if not missing:
            break
        variants = list(file.places[place])
        chance.shuffle(variants)
        candidates = (file.mutant(variant, group) for variant in variants)
        fitting = (mutant for mutant in candidates if mutant is not None and _adds(mutant, list(made.values())))
        chosen = next(fitting, None)
        if chosen is not None:
            name = missing.pop(0)
            made[name] = replace(chosen, id=name)
    if missing:
        raise SystemExit(f"Too few places for the group {group}: {', '.join(missing)} not drawn")
    return sorted(made.values(), key=lambda mutant: mutant.id)


def _adds(mutant: Mutant, made: Sequence[Mutant]) -> bool:
    """Whether the mutant is at a line of its own, and its function and its kind of operator are below their limits."""
    families = Counter(other.operator.split("_")[0] for other in made)
    functions = Counter((other.file, other.function) for other in made)
    lines = {(other.file, other.function, other.original, other.ordinal) for other in made}
    return (
        families[mutant.operator.split("_")[0]] < PER_FAMILY
        and functions[mutant.file, mutant.function] < PER_FUNCTION
        and (mutant.file, mutant.function, mutant.original, mutant.ordinal) not in lines
    )


def _applies(mutant: Mutant) -> bool:
    try:
        mutant.line_in((PACKAGE / mutant.file).read_text(encoding="utf-8"))
    except (StaleMutantError, OSError):
        return False
    return True


def main() -> int:
    """Draw what is missing and save it."""
    stored = load()
    drawn: list[Mutant] = []
    for group in GROUPS:
        kept = [mutant for mutant in stored if mutant.group == group and _applies(mutant)]
        made = draw(group, kept)
        ids = {mutant.id for mutant in kept}
        print(f"{group}: {len(kept)} kept, {len(made) - len(kept)} drawn", *(m.id for m in made if m.id not in ids))
        drawn.extend(made)
    save(drawn)
    return 0


if __name__ == "__main__":
    sys.exit(main())
