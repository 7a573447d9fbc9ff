"""Measure the house: modules, importers, circles, medians, blocks of type imports, methods that only forward.

`make figures` prints the figures of this checkout, `make figures ARGS=--list` also what stands behind them; another
checkout is measured by `python tests/support/house.py PATH/src`.
An import counts wherever it stands, also inside a function or for types only; importing a module imports its packages.
"""

from __future__ import annotations

import ast
import re
import statistics
import sys
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

SOURCE: Final = Path(__file__).resolve().parents[2] / "src"
FLOOR_LINES: Final = 60
"""A shorter module argues for itself."""

SMALL_LINES: Final = 100
"""So does a shorter one than this that has one importer."""

CEILING_LINES: Final = 500
FUNCTION_LINES: Final = 40
FOLDER_FILES: Final = 20
ODD_WORDS: Final = frozenset(
    {"told", "tell", "tells", "telling", "untold", "asked", "heard", "said", "nobody", "somebody", "nameless"}
    | {"clerk", "desk", "keeper", "roster", "doorkeeper", "crowd"}
)
"""Words that stand where English has notify, send, report, receive, a noun, or what a class does."""

_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_TRANSACTIONS: Final = frozenset({"read", "write", "write_beside", "write_outside"})


@dataclass(frozen=True, kw_only=True)
class Module:
    """One file of the package, as its text says."""

    name: str
    path: Path
    lines: int
    tree: ast.Module = field(repr=False)
    is_package: bool

    @property
    def has_type_block(self) -> bool:
        """Whether some imports are for the type checker alone."""
        return any(
            isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
            for node in ast.walk(self.tree)
        )


def read_modules(source: Path = SOURCE) -> dict[str, Module]:
    """Return every module below ``source`` by its dotted name."""
    found = {}
    for path in sorted(source.glob("claudeops/**/*.py")):
        parts = path.relative_to(source).with_suffix("").parts
        is_package = parts[-1] == "__init__"
        name = ".".join(parts[:-1] if is_package else parts)
        text = path.read_text(encoding="utf-8")
        found[name] = Module(name=name, path=path, lines=text.count("\n"), tree=ast.parse(text), is_package=is_package)
    return found


def imports(modules: Mapping[str, Module]) -> dict[str, set[str]]:
    """Return which modules each module names in its imports."""
    return {name: set(_named(module, modules)) - {name} for name, module in modules.items()}


def _named(module: Module, modules: Mapping[str, Module]) -> Iterator[str]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                if inner in modules:
                    yield inner
                elif node.module in modules:
                    yield node.module


def imported(module: Module) -> set[str]:
    """Return the modules of any origin that a module imports, wherever it does so."""
    found: set[str] = set()
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            found.add(node.module)
    return found


def circles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Return the groups of modules that import each other, by Tarjan's algorithm."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in graph[name]:
            if other not in index:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], index[other])
        if low[name] == index[name]:
            group = stack[stack.index(name) :]
            del stack[stack.index(name) :]
            if len(group) > 1:
                found.append(sorted(group))

    for name in graph:
        if name not in index:
            visit(name)
    return found


def odd_words(module: Module) -> Counter[str]:
    """Count the odd words in a module's name, identifiers, comments and docstrings, but not in other texts."""
    with tokenize.open(module.path) as source:
        tokens = tokenize.generate_tokens(source.readline)
        texts = [module.path.stem, *(token.string for token in tokens if token.type == tokenize.COMMENT)]
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            texts.append(node.value.value)
        names = (getattr(node, field, None) for field in ("id", "attr", "arg", "name", "asname", "rest"))
        texts += [name for name in names if isinstance(name, str)]
    words = (word.lower() for text in texts for word in _WORD.findall(text))
    return Counter(word for word in words if word in ODD_WORDS)


def odd_words_by_room(modules: Iterable[Module]) -> Counter[str]:
    """Count the odd words of each folder at the top; what stands beside these folders counts as ``""``."""
    found: Counter[str] = Counter()
    for module in modules:
        _, *inner = module.name.split(".")
        room = inner[0] if len(inner) > 1 or (inner and module.is_package) else ""
        found[room] += odd_words(module).total()
    return found


def functions(module: Module) -> Iterator[tuple[str, int]]:
    """Return the functions of a module with their lines, docstring and decorators not counted."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = node.body[1:] if ast.get_docstring(node) is not None else node.body
            lines = (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0
            yield f"{module.name}.{node.name}", lines


def protocols(module: Module) -> Iterator[str]:
    """Return the classes of a module that are a `typing.Protocol`."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ClassDef) and any(
            isinstance(base, ast.Name) and base.id == "Protocol" for base in node.bases
        ):
            yield f"{module.name}.{node.name}"


def classes(modules: Iterable[Module]) -> dict[str, list[str]]:
    """Return the modules that define a public class, by its name."""
    found: dict[str, list[str]] = {}
    for module in modules:
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found.setdefault(node.name, []).append(module.name)
    return found


def small_types(module: Module) -> Iterator[str]:
    """Return the dataclasses, Structs and named tuples of a module that have one or two fields."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ClassDef) and _is_value(node) and len(_fields(node)) in {1, 2}:
            yield f"{module.name}.{node.name}"


def _is_value(node: ast.ClassDef) -> bool:
    decorated = any("dataclass" in ast.unparse(decorator) for decorator in node.decorator_list)
    return decorated or any(ast.unparse(base).split(".")[-1] in {"Struct", "NamedTuple"} for base in node.bases)


def _fields(node: ast.ClassDef) -> list[str]:
    return [
        statement.target.id
        for statement in node.body
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)
    ]


def forwarding(module: Module) -> Iterator[str]:
    """Return the methods that do nothing but call another function with their own arguments."""
    for holder in ast.walk(module.tree):
        if not isinstance(holder, ast.ClassDef):
            continue
        for node in holder.body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and _only_forwards(node):
                yield f"{module.name}.{holder.name}.{node.name}"


def _only_forwards(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    body = node.body[1:] if ast.get_docstring(node) is not None else node.body
    own = {argument.arg for argument in (*node.args.args, *node.args.kwonlyargs)} - {"self"}
    if len(body) != 1 or not own or not isinstance(body[0], ast.Return | ast.Expr):
        return False
    value = body[0].value.value if isinstance(body[0].value, ast.Await) else body[0].value
    if not isinstance(value, ast.Call):
        return False
    if isinstance(value.func, ast.Attribute) and value.func.attr in _TRANSACTIONS:
        return False  # opening a transaction is what the method is for
    given = [*value.args, *(keyword.value for keyword in value.keywords)]
    names = {name.id for one in given for name in ast.walk(one) if isinstance(name, ast.Name)}
    return own <= names and all(isinstance(one, ast.Name | ast.Attribute | ast.Call) for one in given)


@dataclass(frozen=True, kw_only=True)
class House:
    """What is measured."""

    modules: dict[str, Module]
    importers: Counter[str]
    circles: list[list[str]]

    @property
    def folders(self) -> Counter[Path]:
        """Files by folder, ``__init__`` left out."""
        return Counter(module.path.parent for module in self.modules.values() if not module.is_package)

    @property
    def small(self) -> list[str]:
        """The modules that have to argue for themselves."""
        return sorted(
            name
            for name, module in self.modules.items()
            if not module.is_package
            and (module.lines < FLOOR_LINES or (module.lines < SMALL_LINES and self.importers[name] == 1))
        )


def measure(source: Path = SOURCE) -> House:
    """Measure the package below ``source``."""
    modules = read_modules(source)
    graph = imports(modules)
    importers = Counter(other for named in graph.values() for other in named)
    return House(modules=modules, importers=importers, circles=circles(graph))


def figures(house: House) -> list[str]:
    """Return what is measured, a line each."""
    files = [module for module in house.modules.values() if not module.is_package or module.lines > 1]
    lengths = [module.lines for module in files]
    every = sorted(lines for module in files for _, lines in functions(module))
    return [
        f"modules                    {len(files)}, {sum(lengths)} lines",
        f"with one importer          {sum(house.importers[module.name] == 1 for module in files)}",
        f"under {SMALL_LINES} lines            {sum(length < SMALL_LINES for length in lengths)}",
        f"median file                {statistics.median(lengths):g} lines, longest {max(lengths)}",
        f"largest folder             {max(house.folders.values())} files",
        f"import circles             {len(house.circles)}",
        f"type imports in blocks     {sum(module.has_type_block for module in files)} files",
        f"methods that only forward  {sum(1 for module in files for _ in forwarding(module))}",
        f"class names that repeat    {sum(len(where) > 1 for where in classes(house.modules.values()).values())}",
        f"types of 1 or 2 fields     {sum(1 for module in files for _ in small_types(module))}",
        f"functions                  {len(every)}, 90th percentile {every[9 * len(every) // 10]} lines",
        f"functions over {FUNCTION_LINES} lines    {sum(lines > FUNCTION_LINES for lines in every)}",
        f"odd words                  {odd_words_by_room(house.modules.values()).total()}",
    ]


def listed(house: House) -> list[str]:
    """Return the names behind the figures."""
    found: dict[str, list[str]] = {"small": house.small, "circles": [" ".join(one) for one in house.circles]}
    for module in house.modules.values():
        found.setdefault("type blocks", []).extend([module.name] if module.has_type_block else [])
        long = (name for name, lines in functions(module) if lines > FUNCTION_LINES)
        found.setdefault("long functions", []).extend(long)
        found.setdefault("forwarding", []).extend(forwarding(module))
    return [line for title, names in found.items() for line in ("", f"{title}:", *(f"  {name}" for name in names))]


def main() -> None:
    """Print the figures, and with ``--list`` what stands behind them."""
    source = next((Path(given) for given in sys.argv[1:] if not given.startswith("-")), SOURCE)
    house = measure(source)
    lines = figures(house) + (listed(house) if "--list" in sys.argv else [])
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
