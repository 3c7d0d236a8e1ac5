"""What is found in a config: profile, names, shape, mode, platform, and the parsed files."""

import pytest
from tests.support.bootstrap_corpus import bootstrap_config
from tests.support.verify_subjects import subject

from umbilical.assets.bootkube.profile import Profile
from umbilical.assets.names import NATIVE, OWN, Names
from umbilical.assets.spec import Mode, Shape
from umbilical.assets.verify.facts import BootstrapFacts


@pytest.mark.parametrize(
    ("name", "profile", "names", "shape", "mode"),
    [
        ("native", Profile.NATIVE_ON, NATIVE, Shape.OPENSHIFT, Mode.GRPC),
        ("patched", Profile.PATCHED, OWN, Shape.OPENSHIFT, Mode.GRPC),
        ("seed", Profile.PATCHED, OWN, Shape.SEED, Mode.HTTP_CONNECT),
        ("beside-native", Profile.PATCHED, OWN, Shape.OPENSHIFT, Mode.GRPC),
    ],
)
def test_profile_shape_and_mode_are_found(name: str, profile: Profile, names: Names, shape: Shape, mode: Mode) -> None:
    facts = BootstrapFacts(subject(name).content)
    assert facts.has_tunnel
    assert (facts.found_profile, facts.names, facts.found_shape, facts.found_mode) == (profile, names, shape, mode)


def test_what_is_given_is_not_looked_for() -> None:
    facts = BootstrapFacts(subject("patched").content, platform="gcp", shape=Shape.SEED, mode=Mode.HTTP_CONNECT)
    assert (facts.found_platform, facts.found_shape, facts.found_mode) == ("gcp", Shape.SEED, Mode.HTTP_CONNECT)


def test_the_platform_is_the_install_configs() -> None:
    assert BootstrapFacts(bootstrap_config("4.18", platform="azure")).found_platform == "azure"


def test_what_is_no_config_has_no_facts_but_why() -> None:
    facts = BootstrapFacts(b"{")
    assert facts.config is None
    assert facts.config_fault
    assert (facts.found_profile, facts.has_tunnel, facts.bootkube, facts.contents) == (Profile.NONE, False, None, {})
    assert facts.found_platform is None


def test_a_file_that_is_there_twice_is_none_that_can_be_read() -> None:
    patched = subject("patched")
    facts = BootstrapFacts(patched.content)
    assert facts.text(OWN.egress) == patched.text("egress")

    doubled = patched.whole(lambda value: value["storage"]["files"].append(value["storage"]["files"][-2]))
    twice = BootstrapFacts(doubled.content)
    assert twice.config is not None
    assert twice.text(twice.config.files[-1].path) is None


def test_one_changed_sign_does_not_change_the_shape() -> None:
    def off_host(value: dict[str, dict[str, dict[str, dict[str, object]]]]) -> None:
        value["spec"]["template"]["spec"]["hostNetwork"] = False

    assert BootstrapFacts(subject("seed").edited("agent_daemon_set", off_host).content).found_shape is Shape.SEED
