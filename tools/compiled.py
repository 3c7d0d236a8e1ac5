"""Compile the hot rooms with mypyc in a scratch copy of the tree, and run there the tests of what they carry.

The copy keeps the tree pure: a compiled module beside its source would win over every later edit.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

import suite

ROOT: Final = Path(__file__).resolve().parent.parent
COPIED: Final = ("src", "tests", "tools", "docs", "peers", "pyproject.toml", "setup.py", "Makefile")
COPIED_TEXTS: Final = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE")
# The whole of the pure rooms, and of `tunnel` what touches bytes. One unit: calls between these modules are then
# C calls, which is how the gain was measured.
COMPILED_ROOMS: Final = ("wire", "konnectivity")
# `agent`, `certificates`, `listening` and `server` rarely run, but inherit from what does: interpreted classes cannot.
COMPILED_TUNNEL: Final = (
    "agent", "agent_stream", "agent_transport", "backlog", "certificates", "channel", "connect_frontend", "dialing",
    "endpoint", "grpc_client", "grpc_frontend", "keepalive", "linger", "listening", "loop", "payload", "server",
    "server_core", "server_link", "transport", "tunnel_end", "tunnel_stream",
)  # fmt: skip
SHARED_LIBRARY: Final = "umbilical.data_path"
"""All code of the unit lies in one library of this name (and mypyc's suffix), inside the package."""
# What inherits from the unit's classes on behalf of tests; compiled with it in the scratch copy, never in a wheel.
TEST_SUPPORT: Final = (
    "tests/support/data_plane.py", "tests/support/dialling.py", "tests/support/transports.py",
    "tests/support/tunnel_ends.py",
)  # fmt: skip
# Half the time of a wheel's level 3, and the same meaning: this copy is for tests, and measured by nobody.
TEST_LEVEL: Final = "1"
# Rooms that import nothing compiled, and the commands on them: the same code would run a second time.
INTERPRETED_TESTS: Final = (
    "tests/architecture", "tests/bootstrap", "tests/checks", "tests/cluster", "tests/firewall", "tests/hardway",
    "tests/host", "tests/ignition", "tests/lab", "tests/manifests", "tests/pki", "tests/hosted/objects",
    "tests/hosted/pki",
    "tests/cli/bootstrap", "tests/cli/test_config.py", "tests/cli/firewall", "tests/cli/lab", "tests/cli/pki",
    "tests/cli/stage",
    "tests/fuzz/test_verify_mutations.py", "tests/tools/test_bench*.py", "tests/tools/test_peers.py",
    "tests/tools/test_wheels.py",
)  # fmt: skip
BUILD_TIMEOUT_SECONDS: Final = 1800


def compiled_modules(source: Path) -> list[str]:
    """The files of the compiled unit, in a stable order. Raises FileNotFoundError as `matches` does."""
    package = source / "umbilical"
    patterns = [f"{room}/**/*.py" for room in COMPILED_ROOMS] + [f"tunnel/{name}.py" for name in COMPILED_TUNNEL]
    found = {path for pattern in patterns for path in matches(package, pattern)}
    return sorted(str(path) for path in found if path.name != "__init__.py")


def matches(folder: Path, pattern: str) -> list[Path]:
    """What a pattern of the lists above names. Raises FileNotFoundError: a module or test that moved takes it along."""
    found = list(folder.glob(pattern))
    if not found:
        raise FileNotFoundError(f"tools/compiled.py: nothing in {folder} matches {pattern}")
    return found


def copy_tree(scratch: Path) -> None:
    scratch.mkdir(parents=True, exist_ok=True)
    for name in (*COPIED, *COPIED_TEXTS):
        source = ROOT / name
        ignore = shutil.ignore_patterns("__pycache__", "*.egg-info", "*.so", "build")
        if source.is_dir():
            shutil.copytree(source, scratch / name, ignore=ignore)
        elif source.is_file():
            shutil.copy2(source, scratch / name)


def build(scratch: Path) -> None:
    """Copy the tree and compile in place there, what tests inherit by included."""
    copy_tree(scratch)
    # setuptools puts every module where the package's sources are; those of the tests are moved to their own.
    misplaced = scratch / "src" / "tests" / "support"
    misplaced.mkdir(parents=True)
    environment = {
        **os.environ,
        "UMBILICAL_COMPILE": "1",
        "UMBILICAL_COMPILE_ALSO": " ".join(TEST_SUPPORT),
        "UMBILICAL_COMPILE_LEVEL": TEST_LEVEL,
    }
    command = [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"]
    subprocess.run(command, cwd=scratch, env=environment, check=True, timeout=BUILD_TIMEOUT_SECONDS)
    for module in misplaced.glob("*.so"):
        module.rename(scratch / "tests" / "support" / module.name)
    shutil.rmtree(misplaced.parent)


def run_suite(scratch: Path, arguments: list[str]) -> int:
    """Run the suite on the compiled copy, which stands before the editable install on the path."""
    environment = {**os.environ, "PYTHONPATH": str(scratch / "src"), "UMBILICAL_EXPECT_COMPILED": "1"}
    left_out = [f"--ignore={path}" for pattern in INTERPRETED_TESTS for path in matches(scratch, pattern)]
    return suite.run("not real and not soak", ["-q", *left_out, *arguments], scratch, environment)


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="umbilical-compiled-") as folder:
        scratch = Path(folder)
        start = time.monotonic()
        build(scratch)
        count = len(compiled_modules(ROOT / "src")) + len(TEST_SUPPORT)
        print(f"compiled {count} modules in {time.monotonic() - start:.0f} s", flush=True)
        return run_suite(scratch, sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
