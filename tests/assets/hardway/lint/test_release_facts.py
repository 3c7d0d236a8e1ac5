"""What the tree says about its release."""

import pytest
from tests.support import hardway
from tests.support.hardway_everything import everything
from tests.support.hardway_lint import changed

from umbilical.assets.hardway.cluster import Profile
from umbilical.assets.hardway.lint.facts import Facts, Unreadable
from umbilical.assets.hardway.lint.release_facts import (
    container_images,
    podman_commands,
    references,
    release_version,
    value_of,
)


def facts() -> Facts:
    return everything(Profile.OPENSHIFT).facts()


def test_version_and_images_are_those_of_the_release() -> None:
    assert release_version(facts()) == hardway.VERSION
    assert dict(references(facts())) == dict(hardway.payload().images)


def test_the_scripts_containers_are_read_word_by_word() -> None:
    commands = podman_commands(facts())
    assert len(commands) == 3
    assert value_of(commands[2], "entrypoint") == "/usr/bin/machine-config-controller"
    assert value_of(commands[2], "payload-version") == hardway.VERSION
    assert value_of(commands[2], "nothing") == ""


def test_images_of_static_and_of_applied_pods_are_found() -> None:
    paths = {path for path, _ in container_images(facts())}
    assert {"manifests/08-tunnel.yaml", "static-pods/bootstrap/etcd-bootstrap.yaml"} <= paths


def test_a_table_that_is_no_json_is_unreadable() -> None:
    seen = changed(everything(Profile.OPENSHIFT), lambda tree: tree.write("machine-config/image-references", b"["))
    with pytest.raises(Unreadable, match="is not JSON"):
        release_version(seen.facts())
