"""Bash and ShellCheck on scripts: beside the artifacts and inside Ignition."""

import pytest
from tests.support.hardway_judges import after, bench, current
from tests.support.hardway_lint import Subject

from umbilical.assets.hardway.cluster import Profile
from umbilical.assets.names import BOOTKUBE
from umbilical.hardway.judges.scripts import scripts, style_faults, syntax_faults

BROKEN = b"#!/bin/bash\nif true; then\n"
CARELESS = b"#!/bin/bash\ncd $1\nrm -rf *\nx=1\n"


def test_scripts_are_found_on_disk_and_on_nodes() -> None:
    with bench(current(Profile.OPENSHIFT)) as opened:
        names = [name for name, _ in scripts(opened)]
    assert "infrastructure/host-plan.sh" in names
    assert f"bootstrap:{BOOTKUBE}" in names


@pytest.mark.parametrize("profile", list(Profile))
def test_bash_reads_them_all(profile: Profile) -> None:
    with bench(current(profile)) as opened:
        assert syntax_faults(opened) == []


def test_a_script_on_a_node_that_does_not_parse_is_a_fault() -> None:
    subject = after(Profile.KUBERNETES, lambda tree: tree.edit_ignition("bootstrap", BOOTKUBE, lambda _: BROKEN))
    with bench(subject) as opened:
        (fault,) = syntax_faults(opened)
    assert fault.startswith(f"bootstrap:{BOOTKUBE}: ")


def test_a_config_that_cannot_be_read_is_others_business() -> None:
    def spoil(tree: Subject) -> None:
        tree.write("ignition/bootstrap.ign", b"{")

    with bench(after(Profile.KUBERNETES, spoil)) as opened:
        assert syntax_faults(opened) == []


@pytest.mark.real("shellcheck")
def test_shellcheck_tells_where() -> None:
    with bench(after(Profile.KUBERNETES, lambda tree: tree.write("x.sh", CARELESS))) as opened:
        faults = style_faults(opened)
    assert any(fault.startswith("x.sh:2:") for fault in faults)
