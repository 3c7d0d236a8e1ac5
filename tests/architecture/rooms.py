"""Read the source tree: rooms, modules, and the imports of each module."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

REPOSITORY: Final = Path(__file__).resolve().parent.parent.parent
PACKAGE: Final = REPOSITORY / "src" / "umbilical"
TESTS: Final = REPOSITORY / "tests"


@dataclass(frozen=True)
class Module:
    """One source file, parsed."""

    path: Path
    text: str
    tree: ast.Module

    @property
    def relative(self) -> Path:
        return self.path.relative_to(PACKAGE)

    @property
    def room(self) -> str:
        """The folder directly under the package; empty for files of the package itself."""
        return self.relative.parts[0] if len(self.relative.parts) > 1 else ""

    @property
    def dotted(self) -> str:
        parts = ("umbilical", *self.relative.with_suffix("").parts)
        return ".".join(part for part in parts if part != "__init__")

    def has_code(self) -> bool:
        """Whether the module has code that can run, not only declarations (settings, Protocols, enums)."""
        return any(
            _has_body(node) for node in ast.walk(self.tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        )

    def imports(self) -> Iterator[str]:
        """Yield the dotted name of every import in the file, also inside functions."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                yield from self._from_import(node)

    def _from_import(self, node: ast.ImportFrom) -> Iterator[str]:
        base = node.module or ""
        if node.level:
            package = self.dotted.split(".") if self.path.name == "__init__.py" else self.dotted.split(".")[:-1]
            base = ".".join(package[: len(package) - node.level + 1] + ([node.module] if node.module else []))
        # `from umbilical import wire`: the imported name is the room.
        yield from (f"{base}.{alias.name}" for alias in node.names)


def _has_body(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Docstrings, `...` and `pass` do not count, nor an `__init__` that only stores its arguments."""
    kept = (ast.Assign, ast.AnnAssign) if function.name == "__init__" else ()
    return not all(isinstance(statement, (ast.Pass, *kept)) or _is_idle(statement) for statement in function.body)


def _is_idle(statement: ast.stmt) -> bool:
    if not isinstance(statement, ast.Expr):
        return False
    return isinstance(statement.value, ast.Constant) or ast.unparse(statement).startswith("super().__init__(")


def parse(path: Path) -> Module:
    text = path.read_text()
    return Module(path, text, ast.parse(text, str(path)))


@cache
def modules() -> list[Module]:
    """Return all modules of the package, sorted by path; parsed once for all tests."""
    return [parse(path) for path in sorted(PACKAGE.rglob("*.py"))]
