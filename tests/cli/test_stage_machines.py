"""Who runs machines, by what the config says."""

from pathlib import Path

from tests.support import hardway

from umbilical.assets.hardway.cluster import Profile
from umbilical.cli.stage_machines import machines_for, trial_for


def test_the_config_says_which_machines(tmp_path: Path) -> None:
    assert machines_for(hardway.cluster(Profile.KUBERNETES), tmp_path).kind == "lab"
    assert machines_for(hardway.cluster(), tmp_path).kind == "libvirt"
    assert list(tmp_path.iterdir()) == []


def test_only_a_lab_has_an_image_by_which_a_cluster_is_tried() -> None:
    assert trial_for(hardway.cluster(Profile.KUBERNETES)) is not None
    assert trial_for(hardway.cluster()) is None
