"""Which rooms each room may import, and which modules the two daemons may load."""

import re
import subprocess
import sys
from typing import Final

import pytest
from tests.architecture.rooms import PACKAGE, Module, modules

# Which rooms each room may import. docs/architecture.md has the same picture.
_SHARED: Final = frozenset({"manifests", "ignition", "checks", "cluster", "host", "pki"})
_CLIENT: Final = frozenset({"dialer", "tunnel", "konnectivity", "wire"})
MAY_IMPORT: Final[dict[str, frozenset[str]]] = {
    "wire": frozenset(),
    "konnectivity": frozenset({"wire"}),
    "tunnel": frozenset({"konnectivity", "wire"}),
    "dialer": frozenset({"tunnel", "konnectivity", "wire"}),
    "proxies": _CLIENT | {"cluster"},
    "cluster": frozenset(),
    "pki": frozenset({"checks"}),
    "host": frozenset(),
    "checks": frozenset(),
    "ignition": frozenset(),
    "manifests": frozenset({"pki"}),
    "bootstrap": _SHARED,
    "firewall": _SHARED - {"cluster", "pki"},
    "hosted": (_SHARED - {"ignition"}) | (_CLIENT - {"wire"}),
    "hardway": _SHARED | {"bootstrap"},
    "lab": _SHARED | _CLIENT | {"bootstrap", "firewall", "hosted", "hardway"},
    "cli": _SHARED | _CLIENT | {"proxies", "bootstrap", "firewall", "hosted", "hardway", "lab"},
}
# Files of the package itself: the version, the entry to `cli`, the pure form of a compiled installation, and
# what every room may use: errors, their codes, and records.
PACKAGE_FILES: Final = {
    "__init__.py": frozenset[str](),
    "__main__.py": frozenset({"cli"}),
    "codes.py": frozenset[str](),
    "fault.py": frozenset[str](),
    "pure.py": frozenset[str](),
    "record.py": frozenset[str](),
}

# Memory and start-up time of every agent pod depend on this list (docs/decisions/0002-libraries.md).
DAEMON_BASE: Final = ("asyncio", "logging", "pathlib", "ssl")
"""Always needed; more than half of the start-up time and three quarters of the memory."""
DAEMON_MODULES: Final = frozenset({"bisect", "gc", "hashlib", "http", "queue", "random", "resource", "urllib"})
DAEMONS: Final = (
    "umbilical.cli.drop_ins.proxy_server, umbilical.tunnel.event_loop, umbilical.tunnel.server_process",
    "umbilical.cli.drop_ins.proxy_agent, umbilical.tunnel.event_loop, umbilical.tunnel.agent_process",
)


def _rooms_imported(module: Module) -> set[str]:
    ours = [name.split(".") for name in module.imports() if name.split(".")[0] == "umbilical"]
    return {parts[1] for parts in ours if len(parts) > 1 and (PACKAGE / parts[1]).is_dir()}


def _allowed(module: Module) -> frozenset[str]:
    if not module.room:
        return PACKAGE_FILES[str(module.relative)]
    return MAY_IMPORT[module.room] | {module.room}


def test_every_room_is_in_the_table() -> None:
    rooms = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").is_file()}
    assert rooms == set(MAY_IMPORT)


def test_no_two_rooms_may_import_each_other() -> None:
    for room, targets in MAY_IMPORT.items():
        for target in targets:
            assert room not in MAY_IMPORT[target], f"{room} and {target} import each other"


def test_a_module_imports_only_rooms_that_its_room_may_import() -> None:
    strangers = {str(module.relative): sorted(_rooms_imported(module) - _allowed(module)) for module in modules()}
    assert {name: rooms for name, rooms in strangers.items() if rooms} == {}


def test_room_names_are_written_in_full() -> None:
    """A relative import hides the room that it imports from."""
    assert [str(module.relative) for module in modules() if re.search(r"^\s*from \.", module.text, re.MULTILINE)] == []


@pytest.mark.parametrize("daemon", DAEMONS)
def test_a_daemon_starts_with_the_standard_library_alone(daemon: str) -> None:
    # What any interpreter loads at start-up (the finder of an editable install) does not count.
    foreign = _loaded(daemon) - _loaded("sys") - sys.stdlib_module_names - {"umbilical"}
    assert not foreign, f"{daemon} also loads {sorted(foreign)}"


def test_server_and_agent_never_load_h11() -> None:
    """Not even for a request with a body at the health port: it would cost 11 ms and 0.6 MB (decisions/0017)."""
    rooms = ("wire", "konnectivity", "tunnel")
    assert [str(one.relative) for one in modules() if one.room in rooms and "h11" in {*one.imports()}] == []


@pytest.mark.parametrize("daemon", DAEMONS)
def test_a_daemon_loads_little_of_the_standard_library_beside_asyncio(daemon: str) -> None:
    """What asyncio and the others import themselves depends on the version of Python, and does not count."""
    brought = _loaded(daemon) - _loaded(", ".join(DAEMON_BASE)) - {"umbilical"}
    more = {name for name in brought if not name.startswith("_")} - DAEMON_MODULES
    assert not more, f"{daemon} also loads {sorted(more)}: see `python -X importtime`, or import it when used"


def test_the_drop_ins_load_neither_click_nor_modules_of_other_commands() -> None:
    for program in ("umbilical.cli.drop_ins.proxy_server", "umbilical.cli.drop_ins.proxy_agent"):
        assert _loaded(program) & {"click", "cryptography", "yaml", "json", "argparse", "platform"} == set()


def _loaded(modules: str) -> set[str]:
    """Return the top-level modules that a new interpreter has loaded after importing these."""
    script = f"import sys, {modules}; print(*{{name.split('.')[0] for name in sys.modules}})"
    command = [sys.executable, "-I", "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return set(done.stdout.split())
