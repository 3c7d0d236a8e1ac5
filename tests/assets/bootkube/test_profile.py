import pytest
from tests.support.bootkube_script import NATIVE_RELEASES, RELEASES, bootkube_script
from tests.support.bootstrap_corpus import bootstrap_config

from umbilical.assets.bootkube.profile import Profile, profile_of
from umbilical.assets.names import RECEIPT
from umbilical.ignition.config import read_config


def _profile(content: bytes) -> Profile:
    return profile_of(read_config(content))


@pytest.mark.parametrize("release", RELEASES)
def test_an_installer_without_the_feature_has_no_profile(release: str) -> None:
    assert _profile(bootstrap_config(release)) is Profile.NONE


@pytest.mark.parametrize("release", NATIVE_RELEASES)
def test_the_built_in_tunnel_is_told_off_from_on_though_its_files_are_there_in_both(release: str) -> None:
    assert _profile(bootstrap_config(release, native="off")) is Profile.NATIVE_OFF
    assert _profile(bootstrap_config(release, native="on")) is Profile.NATIVE_ON


def test_half_of_the_built_in_tunnel_counts_as_on() -> None:
    script = bootkube_script("5.0", native="on")
    assert _profile(bootstrap_config("5.0", native="off", script=script)) is Profile.NATIVE_ON
    script = bootkube_script("5.0", native="off")
    assert _profile(bootstrap_config("5.0", native="on", script=script)) is Profile.NATIVE_ON


def test_calls_without_the_library_are_not_taken_for_nothing() -> None:
    assert _profile(bootstrap_config(script=bootkube_script("5.0", native="off"))) is Profile.NATIVE_OFF


def test_a_receipt_tells_a_patched_config_and_so_does_a_sourced_library() -> None:
    receipt = {"path": RECEIPT, "mode": 384, "contents": {"source": "data:,"}}
    assert _profile(bootstrap_config(extra_files=(receipt,))) is Profile.PATCHED
    script = bootkube_script("4.18").replace("\nBOOTSTRAP", "\n. /usr/local/bin/umbilical-konnectivity.sh\nBOOTSTRAP")
    assert _profile(bootstrap_config(script=script)) is Profile.PATCHED


def test_a_script_that_cannot_be_read_or_is_not_there_does_not_stop_classifying() -> None:
    assert _profile(b'{"ignition":{"version":"3.2.0"}}') is Profile.NONE
    entry = b'{"path":"/usr/local/bin/bootkube.sh","contents":{"source":"data:;base64,!"}}'
    assert _profile(b'{"ignition":{"version":"3.2.0"},"storage":{"files":[' + entry + b"]}}") is Profile.NONE
