"""Compiles the hot rooms with mypyc, and runs their tests on a scratch copy of the tree with the compiled modules.

    compiled.py --build FOLDER           leaves the compiled modules in FOLDER
    compiled.py FOLDER [pytest's arguments]

Not in the tree itself: Python prefers a compiled module to its source, so later edits would have no effect.
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
# All of the pure rooms, and the data path of `tunnel`. As one unit, calls between these modules are C calls.
COMPILED_ROOMS: Final = ("wire", "konnectivity")
# `agent`, `certificates`, `listening` and `server` rarely run, but inherit from compiled classes, so they must be too.
COMPILED_TUNNEL: Final = (
    "agent", "agent_stream", "agent_transport", "backlog", "certificates", "channel", "connect_frontend", "descriptors",
    "destinations", "dialing", "endpoint", "faults", "grpc_client", "grpc_frontend", "keepalive", "linger", "listening",
    "loop", "notices", "passing", "payload", "recent", "round_trips", "server", "server_core", "server_link",
    "siblings", "tls_channel", "transport", "tunnel_end", "tunnel_stream", "unadmitted",
)  # fmt: skip
SHARED_LIBRARY: Final = "umbilical.data_path"
"""All compiled code is in one library of this name (and mypyc's suffix), inside the package."""
# Test classes that inherit from compiled classes; compiled in the scratch copy only, never in a wheel.
TEST_SUPPORT: Final = (
    "tests/support/data_plane.py", "tests/support/dialling.py", "tests/support/transports.py",
    "tests/support/tunnel_ends.py",
)  # fmt: skip
# Half the build time of a wheel's level 3; this copy is for tests, not for measurements.
TEST_LEVEL: Final = "1"
# Tests of rooms that import nothing compiled: they would run the same code a second time. And the simulation, which
# replaces clock and sockets where compiled code does not look for them.
INTERPRETED_TESTS: Final = (
    "tests/architecture", "tests/bootstrap", "tests/checks", "tests/cluster", "tests/firewall", "tests/hardway",
    "tests/host", "tests/ignition", "tests/lab", "tests/manifests", "tests/pki", "tests/hosted/objects",
    "tests/hosted/pki",
    "tests/cli/bootstrap", "tests/cli/test_config.py", "tests/cli/firewall", "tests/cli/lab", "tests/cli/pki",
    "tests/cli/stage",
    "tests/simulation", "tests/tools/test_simulate.py",
    "tests/fuzz/test_verify_mutations.py", "tests/tools/test_bench*.py", "tests/tools/test_peers.py",
    "tests/tools/test_chart*.py", "tests/tools/test_compatibility.py", "tests/tools/test_conformance.py",
    "tests/tools/test_debian.py", "tests/tools/test_image*.py", "tests/tools/test_release.py",
    "tests/tools/test_wheels.py",
)  # fmt: skip
BUILD_TIMEOUT_SECONDS: Final = 1800


def compiled_modules(source: Path) -> list[str]:
    """Return the files of the compiled unit in a stable order. Raises FileNotFoundError as `matches`."""
    package = source / "umbilical"
    patterns = [f"{room}/**/*.py" for room in COMPILED_ROOMS] + [f"tunnel/{name}.py" for name in COMPILED_TUNNEL]
    found = {path for pattern in patterns for path in matches(package, pattern)}
    return sorted(str(path) for path in found if path.name != "__init__.py")


def matches(folder: Path, pattern: str) -> list[Path]:
    """Return the files that match a pattern. Raises FileNotFoundError if there is none, e.g. after a rename."""
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


def build(folder: Path) -> None:
    """Compile a scratch copy of the tree, test classes included, and move the modules to `folder`."""
    with tempfile.TemporaryDirectory(prefix="umbilical-compiled-") as name:
        scratch = Path(name)
        copy_tree(scratch)
        _compile_in_place(scratch)
        shutil.rmtree(folder, ignore_errors=True)
        for module in scratch.rglob("*.so"):
            place = folder / module.relative_to(scratch)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(module, place)


def _compile_in_place(scratch: Path) -> None:
    # setuptools puts all modules below `src`; those of the tests are moved to the tests.
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
    shutil.rmtree(scratch / "build")  # the compiler's own copies


def run_suite(scratch: Path, arguments: list[str]) -> int:
    """Run the suite on the compiled copy, which precedes the editable install on the path."""
    environment = {**os.environ, "PYTHONPATH": str(scratch / "src"), "UMBILICAL_EXPECT_COMPILED": "1"}
    left_out = [f"--ignore={path}" for pattern in INTERPRETED_TESTS for path in matches(scratch, pattern)]
    return suite.run("not real and not soak", ["-q", *left_out, *arguments], scratch, environment)


def main(arguments: list[str]) -> int:
    if arguments[0] == "--build":
        start = time.monotonic()
        build(Path(arguments[1]))
        count = len(compiled_modules(ROOT / "src")) + len(TEST_SUPPORT)
        print(f"compiled {count} modules in {time.monotonic() - start:.0f} s", flush=True)
        return 0
    with tempfile.TemporaryDirectory(prefix="umbilical-compiled-") as name:
        scratch = Path(name)
        copy_tree(scratch)
        shutil.copytree(arguments[0], scratch, dirs_exist_ok=True)
        return run_suite(scratch, arguments[1:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
