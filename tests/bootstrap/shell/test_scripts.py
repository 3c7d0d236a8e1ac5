"""The scripts as text: what must stand in them, and what must never."""

import ipaddress
import re
import subprocess
from typing import Any, Final

import pytest

from umbilical.bootstrap.names import NATIVE, OWN, STAGES, TunnelNames
from umbilical.bootstrap.render import objects
from umbilical.bootstrap.shell.scripts import certificate_script, library
from umbilical.bootstrap.spec import Shape, for_shape

SPECS: Final[dict[str, dict[str, Any]]] = {
    "auto": {},
    "machine-networks": {"machine_networks": (ipaddress.ip_network("10.0.0.0/16"), ipaddress.ip_network("fd00::/64"))},
    "ipv6": {"use_ipv6": True},
    "fixed": {"node_ip": ipaddress.ip_address("fd00::5"), "image": "registry.example/own@sha256:" + "0" * 64},
}


def text(
    shape: Shape = Shape.OPENSHIFT, names: TunnelNames = OWN, *, makes_certificates: bool = True, **changes: Any
) -> str:
    return library(for_shape(shape, **changes), names, makes_certificates=makes_certificates).decode()


def code(script: str) -> str:
    return "\n".join(line for line in script.splitlines() if not line.lstrip().startswith("#"))


def every_script() -> dict[str, str]:
    libraries = {
        f"{shape.value}-{name}-{'made' if made else 'given'}": text(shape, makes_certificates=made, **changes)
        for shape in (Shape.OPENSHIFT, Shape.SEED)
        for name, changes in SPECS.items()
        for made in (True, False)
    }
    return {**libraries, "native": text(names=NATIVE), "certificates": certificate_script().decode()}


SCRIPTS: Final = every_script()


def said_of_every_script(command: list[str]) -> dict[str, str]:
    """Run a program over each script; return what it said about those that it does not accept."""
    runs = {
        name: subprocess.run(command, input=script, text=True, capture_output=True, timeout=60, check=False)
        for name, script in SCRIPTS.items()
    }
    return {name: done.stdout + done.stderr for name, done in runs.items() if done.returncode or done.stderr}


def test_bash_can_read_every_script() -> None:
    assert said_of_every_script(["bash", "-n"]) == {}


@pytest.mark.real("shellcheck")
def test_shellcheck_has_nothing_to_say() -> None:
    # A list that the spec fills may have one word.
    assert said_of_every_script(["shellcheck", "--shell=bash", "--exclude=SC2043", "-"]) == {}


def test_no_script_has_what_would_fail_or_hide_a_failure() -> None:
    for forbidden in (
        r"@[A-Z_]+@|^#@",  # what is left of a template
        r"\b(envsubst|python3?|perl|yq|curl|kubectl|hostname)\b",  # programs that a bare node lacks
        # The service record has the one EXIT trap, and sourcing it again would record a second start.
        r"^\s*(trap|source|\.|exec|eval)\s",
        # `local x=$(…)` and `export x=$(…)` have the exit status of local and export.
        r"^\s*(local|export|readonly|declare)\b[^\n]*=\"?\$\(",
    ):
        texts = SCRIPTS if "@" in forbidden else {name: code(script) for name, script in SCRIPTS.items()}
        assert [name for name, script in texts.items() if re.search(forbidden, script, re.MULTILINE)] == []


def test_the_three_functions_have_the_names_that_were_asked_for() -> None:
    for names in (OWN, NATIVE):
        for function in (names.setup_function, names.manifests_function, names.cleanup_function):
            assert text(names=names).count(f"\n{function}() {{\n") == 1


def test_each_stage_is_guarded_begun_done_and_ended_in_that_order() -> None:
    script = text()
    for stage in STAGES:
        guard = script.index(f"if [ ! -f {stage}.done ]; then\n        record_service_stage_start")
        begun = script.index(f'record_service_stage_start "{stage}"')
        finished = script.index(f"touch {stage}.done\n")
        assert guard < begun < finished < script.index("record_service_stage_success\n", finished)
        assert script.count(f'record_service_stage_start "{stage}"') == script.count(f"touch {stage}.done") == 1


def test_every_placeholder_is_filled_by_sed_and_only_the_clusters_family_looked_for() -> None:
    for placeholder in objects.ALL:
        assert f"\ns|\\{placeholder}|${{{placeholder[2:-1]}:-}}|g\n" in text()
    assert set(re.findall(r"\bip -(\d)", code(text()))) == {"4"}
    assert set(re.findall(r"\bip -(\d)", code(text(use_ipv6=True)))) == {"6"}


def test_machine_networks_of_the_other_family_are_passed_over_and_a_tiny_one_has_a_target() -> None:
    script = text(**SPECS["machine-networks"])
    assert "in 10.0.0.0/16; do" in script
    assert "in 10.0.0.1 1.1.1.1; do" in script
    assert "fd00" not in script
    for network in ("10.0.0.9/32", "10.0.0.8/31"):
        assert "in 10.0.0.9 1.1.1.1; do" in text(machine_networks=(ipaddress.ip_network(network),))


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
