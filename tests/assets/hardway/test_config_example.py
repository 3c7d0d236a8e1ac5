"""The example is read as any other file, and so is each of its comments."""

import re

import jsonschema
import pytest
import yaml
from tests.support import hardway

from umbilical.assets.errors import AssetError
from umbilical.assets.hardway.cluster import MachinesKind, Profile
from umbilical.assets.hardway.config_example import Wish, example
from umbilical.assets.hardway.config_keys import KEYS
from umbilical.assets.hardway.config_reading import read_cluster
from umbilical.assets.hardway.config_schema import schema

LAB = Wish(Profile.KUBERNETES, MachinesKind.LAB, 1, 1)
OPENSHIFT = Wish(Profile.OPENSHIFT, MachinesKind.LIBVIRT, 3, 2)
UPSTREAM = Wish(Profile.KUBERNETES, MachinesKind.LIBVIRT, 3, 0)
WISHES = [LAB, OPENSHIFT, UPSTREAM]


@pytest.mark.parametrize("wish", WISHES)
def test_it_is_a_valid_file_of_that_cluster(wish: Wish) -> None:
    content = example(wish)
    cluster = read_cluster(content).cluster
    assert (cluster.profile, cluster.machines) == (wish.profile, wish.machines)
    assert (len(cluster.masters), len(cluster.workers)) == (wish.masters, wish.workers)
    jsonschema.validate(yaml.safe_load(content), schema())


@pytest.mark.parametrize("wish", WISHES)
def test_every_key_that_means_something_is_explained(wish: Wish) -> None:
    text = example(wish).decode()
    for key in KEYS:
        is_meant = key.only in (None, wish.profile, wish.machines)
        if "[]" not in key.path and not (key.path == "nodes.workers.firstAddress" and not wish.workers):
            assert (f"{key.path.rpartition('.')[2]}: " in text) or not is_meant, key.path
        if is_meant and "[]" not in key.path:
            assert f"# {key.about}" in text


@pytest.mark.parametrize("wish", WISHES)
def test_what_its_comments_show_holds_already(wish: Wish) -> None:
    text = example(wish).decode()
    samples = r"(\s*)# ((?:sshKeys|sshKeyFile|directory|mac|interface|pullSecretFile|  - \{|machines)\b.*)"
    kept = [line for line in text.splitlines() if not re.fullmatch(samples, line) and "#   -" not in line]
    bare = "\n".join(re.sub(r"^(\s*)# ([a-zA-Z]+: \S.*)$", r"\1\2", line) for line in kept)
    # Explanations have a colon too; they begin with a word that is no key.
    bare = "\n".join(line for line in bare.splitlines() if not re.match(r"(lab|openshift): ", line))
    assert read_cluster(bare.encode()).cluster == read_cluster(text.encode()).cluster


def test_keys_and_names_can_be_given() -> None:
    wish = Wish(Profile.KUBERNETES, MachinesKind.LAB, 1, 1, "mine", (hardway.SSH_KEY,))
    cluster = read_cluster(example(wish)).cluster
    assert (cluster.name, cluster.access.ssh_keys) == ("mine", (hardway.SSH_KEY,))


def test_a_cluster_that_cannot_be_is_refused() -> None:
    with pytest.raises(AssetError, match="RHCOS does not run in namespaces"):
        example(Wish(Profile.OPENSHIFT, MachinesKind.LAB, 3, 2))


def test_the_same_wish_gives_the_same_bytes() -> None:
    assert example(OPENSHIFT) == example(OPENSHIFT)
