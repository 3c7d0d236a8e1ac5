"""The scripts as text: what must stand in them, and what must never."""

import ipaddress
import re
import subprocess
from typing import Any, Final

import pytest

from umbilical.assets.manifests import placeholders
from umbilical.assets.names import NATIVE, OWN, STAGES, Names
from umbilical.assets.shell.scripts import certificate_script, library
from umbilical.assets.spec import Shape, for_shape

SPECS: Final[dict[str, dict[str, Any]]] = {
    "auto": {},
    "machine-networks": {
        "machine_networks": (ipaddress.ip_network("10.0.0.0/16"), ipaddress.ip_network("fd00::/64")),
    },
    "ipv6": {"use_ipv6": True},
    "fixed": {"node_ip": ipaddress.ip_address("fd00::5"), "image": "registry.example/own@sha256:" + "0" * 64},
}


def text(shape: Shape = Shape.OPENSHIFT, names: Names = OWN, *, makes_certificates: bool = True, **changes: Any) -> str:
    return library(for_shape(shape, **changes), names, makes_certificates=makes_certificates).decode()


def code(script: str) -> str:
    return "\n".join(line for line in script.splitlines() if not line.lstrip().startswith("#"))


def every_script() -> list[tuple[str, str]]:
    libraries = [
        (f"{shape.value}-{name}-{'made' if made else 'given'}", text(shape, makes_certificates=made, **changes))
        for shape in (Shape.OPENSHIFT, Shape.SEED)
        for name, changes in SPECS.items()
        for made in (True, False)
    ]
    return [*libraries, ("native", text(names=NATIVE)), ("certificates", certificate_script().decode())]


SCRIPTS: Final = every_script()
each_script = pytest.mark.parametrize("script", [text for _, text in SCRIPTS], ids=[name for name, _ in SCRIPTS])


@each_script
def test_bash_can_read_it(script: str) -> None:
    done = subprocess.run(["bash", "-n"], input=script, text=True, capture_output=True, timeout=30, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@each_script
@pytest.mark.real("shellcheck")
def test_shellcheck_has_nothing_to_say(script: str) -> None:
    # A list that the spec fills may have one word.
    command = ["shellcheck", "--shell=bash", "--exclude=SC2043", "-"]
    done = subprocess.run(command, input=script, text=True, capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout


@each_script
def test_nothing_of_the_template_is_left(script: str) -> None:
    assert not re.search(r"@[A-Z_]+@|^#@", script, re.M)


@each_script
def test_only_programs_of_a_bare_node_are_used(script: str) -> None:
    assert not re.search(r"\b(envsubst|python3?|perl|yq|curl|kubectl|hostname)\b", code(script))


@each_script
def test_it_neither_traps_nor_sources(script: str) -> None:
    """The service record has the one EXIT trap, and sourcing it again would record a second start."""
    assert not re.search(r"^\s*(trap|source|\.|exec|eval)\s", code(script), re.M)


@each_script
def test_no_assignment_hides_a_failure(script: str) -> None:
    """`local x=$(…)` and `export x=$(…)` have the exit status of local and export."""
    assert not re.search(r"^\s*(local|export|readonly|declare)\b[^\n]*=\"?\$\(", code(script), re.M)


@pytest.mark.parametrize("names", [OWN, NATIVE], ids=["own", "native"])
def test_the_three_functions_have_the_names_that_were_asked_for(names: Names) -> None:
    script = text(names=names)
    for function in (names.setup_function, names.manifests_function, names.cleanup_function):
        assert script.count(f"\n{function}() {{\n") == 1


@pytest.mark.parametrize("stage", STAGES)
def test_each_stage_is_guarded_begun_done_and_ended_in_that_order(stage: str) -> None:
    script = text()
    guard = script.index(f"if [ ! -f {stage}.done ]; then\n        record_service_stage_start")
    begun = script.index(f'record_service_stage_start "{stage}"')
    finished = script.index(f"touch {stage}.done\n")
    assert guard < begun < finished < script.index("record_service_stage_success\n", finished)
    assert script.count(f'record_service_stage_start "{stage}"') == script.count(f"touch {stage}.done") == 1


@pytest.mark.parametrize("placeholder", placeholders.ALL)
def test_every_placeholder_is_filled_by_sed(placeholder: str) -> None:
    name = placeholder[2:-1]
    assert f"\ns|\\{placeholder}|${{{name}:-}}|g\n" in text()


@pytest.mark.parametrize(("changes", "family"), [({}, 4), ({"use_ipv6": True}, 6)])
def test_only_the_family_of_the_cluster_is_looked_for(changes: dict[str, Any], family: int) -> None:
    assert set(re.findall(r"\bip -(\d)", code(text(**changes)))) == {str(family)}


def test_machine_networks_of_the_other_family_are_passed_over() -> None:
    script = text(**SPECS["machine-networks"])
    assert "in 10.0.0.0/16; do" in script
    assert "in 10.0.0.1 1.1.1.1; do" in script
    assert "fd00" not in script


@pytest.mark.parametrize(("network", "target"), [("10.0.0.9/32", "10.0.0.9"), ("10.0.0.8/31", "10.0.0.9")])
def test_a_tiny_machine_network_has_a_target_inside(network: str, target: str) -> None:
    assert f"in {target} 1.1.1.1; do" in text(machine_networks=(ipaddress.ip_network(network),))


def test_what_is_known_already_is_neither_looked_for_nor_asked_for() -> None:
    script = code(text(**SPECS["fixed"]))
    assert "BOOTSTRAP_NODE_IP='fd00::5'" in script
    assert "image_for" not in script
    assert not re.search(r"\b(ip|jq) ", script)


def test_cleaning_up_never_names_a_namespace_that_is_not_ours() -> None:
    script = code(text(Shape.SEED))
    assert "namespace kube-system" not in script
    assert "--wait=false" in script
    assert "--ignore-not-found=true" in script


def test_no_key_lies_where_cluster_bootstrap_copies_it_from() -> None:
    assert "/opt/openshift/tls" not in text()
    assert "root-ca" not in certificate_script().decode()
