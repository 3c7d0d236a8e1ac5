"""UMBILICAL_PURE=1: a source is loaded although a compiled module is next to it."""

import os
import shutil
import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

from umbilical.pure import prefer_sources

# Prints which file would be loaded for a module of ours; nothing of it is run.
SCRIPT = "import sys, importlib.util; print(importlib.util.find_spec(sys.argv[1]).origin)"


@pytest.fixture
def installed(repository: Path, tmp_path: Path) -> Path:
    """A package as a compiled wheel leaves it, with a file in place of each compiled module that none can load."""
    package = tmp_path / "umbilical"
    shutil.copytree(repository / "src" / "umbilical", package, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    for name in ("wire/http2/buffers", "fault"):
        (package / f"{name}{EXTENSION_SUFFIXES[0]}").write_bytes(b"")
    other = tmp_path / "other"
    other.mkdir()
    (other / "module.py").touch()
    (other / f"module{EXTENSION_SUFFIXES[0]}").write_bytes(b"")
    return tmp_path


def _origin(installed: Path, module: str, *, pure: str | None) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "UMBILICAL_PURE"}
    environment["PYTHONPATH"] = str(installed)
    if pure is not None:
        environment["UMBILICAL_PURE"] = pure
    command = [sys.executable, "-c", f"import umbilical; {SCRIPT}", module]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True)
    return str(Path(done.stdout.strip()).relative_to(installed))


def test_a_compiled_module_wins_unless_the_source_of_ours_is_asked_for(installed: Path) -> None:
    for module, pure in (
        ("umbilical.wire.http2.buffers", None),
        ("umbilical.fault", ""),
        ("umbilical.wire.http2.buffers", "0"),
    ):
        assert _origin(installed, module, pure=pure).endswith(".so")
    for module in ("umbilical.wire.http2.buffers", "umbilical.fault"):
        assert _origin(installed, module, pure="1") == module.replace(".", "/") + ".py"
    assert _origin(installed, "other.module", pure="1").endswith(".so")


def test_a_folder_whose_name_only_begins_alike_is_not_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path_hooks", list(sys.path_hooks))
    monkeypatch.setattr(sys, "path_importer_cache", dict(sys.path_importer_cache))
    prefer_sources([str(tmp_path / "ours")])
    hook = sys.path_hooks[0]
    (tmp_path / "ours" / "room").mkdir(parents=True)
    hook(str(tmp_path / "ours" / "room"))
    with pytest.raises(ImportError):
        hook(str(tmp_path / "ours2"))
