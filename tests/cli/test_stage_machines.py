"""The machines that a config asks for, and nothing made by asking."""

import os
from dataclasses import replace
from pathlib import Path

from tests.support.hardway import cluster

from umbilical.assets.hardway.cluster import MachinesKind, Profile
from umbilical.cli.stage_machines import machines_for, trial_for
from umbilical.host.machine_records import Power


def test_a_lab_lies_in_the_clusters_directory_and_comes_with_a_trial(tmp_path: Path) -> None:
    of = cluster(Profile.KUBERNETES)
    machines = machines_for(of, tmp_path)
    assert machines.kind == "lab"
    assert machines.power("master-0") is Power.ABSENT
    assert trial_for(of) is not None
    assert os.listdir(tmp_path) == []


def test_a_config_that_says_libvirt_gets_virtual_machines_and_no_trial(tmp_path: Path) -> None:
    of = cluster(Profile.OPENSHIFT)
    assert machines_for(of, tmp_path).kind == "libvirt"
    assert trial_for(of) is None
    assert machines_for(replace(of, machines=MachinesKind.LAB), tmp_path).kind == "lab"
