"""Names of injected files and functions."""

import dataclasses

from umbilical.assets.names import NATIVE, OWN, RECEIPT


def test_our_names_and_the_landed_ones_have_nothing_in_common() -> None:
    own = set(dataclasses.astuple(OWN)) | {RECEIPT}

    assert own.isdisjoint(dataclasses.astuple(NATIVE))


def test_the_render_container_knows_the_override_by_another_path() -> None:
    assert NATIVE.override_in_render_container == "/assets/konnectivity-config-override.yaml"
    assert OWN.override_in_render_container == "/assets/umbilical/konnectivity-config-override.yaml"


def test_our_keys_are_made_where_cluster_bootstrap_does_not_copy_them() -> None:
    assert not OWN.pki_directory.startswith("/opt/openshift/tls")
