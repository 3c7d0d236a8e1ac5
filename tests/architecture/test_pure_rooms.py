"""Pure packages have no I/O, clock or random numbers. Time and identifiers are arguments."""

import ast
from typing import Final

from tests.architecture.rooms import PACKAGE, Module, modules

PURE: Final = (
    "wire", "konnectivity", "checks", "ignition", "manifests",
    "bootstrap/spec.py", "bootstrap/names.py", "bootstrap/render", "bootstrap/patch", "bootstrap/shell",
    "bootstrap/verify",
    "firewall/platforms", "firewall/forms", "hosted/objects",
    "hardway/config", "hardway/artifacts", "hardway/lint", "hardway/explain",
    "tunnel/status/state.py",
)  # fmt: skip
IMPURE_MODULES: Final = frozenset(
    {
        "asyncio", "concurrent", "datetime", "fcntl", "http", "io", "logging", "multiprocessing", "os", "pathlib",
        "random", "secrets", "select", "selectors", "shutil", "signal", "socket", "socketserver", "ssl", "subprocess",
        "sys", "tempfile", "threading", "time", "urllib.request", "uuid",
    }
)  # fmt: skip
IMPURE_CALLS: Final = frozenset({"open", "print", "input", "exec", "eval", "breakpoint", "__import__"})


def _pure_modules() -> list[Module]:
    return [module for module in modules() if any(module.path.is_relative_to(PACKAGE / place) for place in PURE)]


def _prefixes(dotted: str) -> set[str]:
    parts = dotted.split(".")
    return {".".join(parts[:length]) for length in range(1, len(parts) + 1)}


def _calls(module: Module) -> set[str]:
    nodes = [node.func for node in ast.walk(module.tree) if isinstance(node, ast.Call)]
    return {node.id for node in nodes if isinstance(node, ast.Name)}


def test_the_pure_paths_exist() -> None:
    assert [place for place in PURE if not (PACKAGE / place).exists()] == []


def test_a_pure_package_imports_no_module_with_side_effects() -> None:
    impure = {
        str(module.relative): [name for name in module.imports() if IMPURE_MODULES.intersection(_prefixes(name))]
        for module in _pure_modules()
    }
    assert {name: imports for name, imports in impure.items() if imports} == {}


def test_a_pure_package_calls_no_function_with_side_effects() -> None:
    impure = {str(module.relative): _calls(module) & IMPURE_CALLS for module in _pure_modules()}
    assert {name: calls for name, calls in impure.items() if calls} == {}
