"""Keys of a cluster's file: their kinds, defaults, schema and the example that explains them."""

import re
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support import hardway, hardway_config
from tests.support.manifests import json_values

from umbilical.fault import RenderError
from umbilical.hardway.config.cluster import ClusterProfile, MachinesKind, Switch
from umbilical.hardway.config.example import ExampleOptions, example
from umbilical.hardway.config.keys import (
    ADDRESS,
    KEYS,
    MAX_MASTERS,
    NETWORK,
    ON_OFF,
    ChoiceValue,
    ConstantValue,
    Key,
    NumberValue,
    TextListValue,
    TextValue,
    ValueType,
)
from umbilical.hardway.config.reading import read_cluster, schema
from umbilical.hardway.config.resolving import MACHINE_NETWORK, FixedAddress
from umbilical.manifests.sections import YamlSection

UNSET: dict[str, Any] = {
    **dict.fromkeys(("address", "firstAddress"), "192.168.126.60"),
    "mac": "52:54:00:00:00:01",
    "interface": "enp1s0",
    "directory": "release",
    "tunnelArchive": "image.tar",
    "sshKeys": [hardway.SSH_KEY],
    "sshKeyFile": "~/.ssh/id_ed25519",
}
"""Values for keys that have no default, by their last names."""
DEFAULTS = {
    profile: {value.path: value.plain for value in read_cluster(hardway_config.content(profile)).values}
    for profile in ("openshift", "kubernetes")
}
BOTH, NEITHER = (True, True), (False, False)
VALIDATOR = jsonschema.Draft202012Validator(schema())
OPTIONAL = [key for key in KEYS if not key.is_needed]
KINDS: list[ValueType] = [
    *(
        TextValue("[a-z]+", "letters"),
        TextListValue("[a-z]+", "letters"),
        NumberValue(1, 9),
        ChoiceValue(ClusterProfile),
        ON_OFF,
        ConstantValue("v1"),
    )
]
LAB = ExampleOptions(ClusterProfile.KUBERNETES, MachinesKind.LAB, 1, 1)
OPENSHIFT = ExampleOptions(ClusterProfile.OPENSHIFT, MachinesKind.LIBVIRT, 3, 2)
UPSTREAM = ExampleOptions(ClusterProfile.KUBERNETES, MachinesKind.LIBVIRT, 3, 0)
WISHES = [LAB, OPENSHIFT, UPSTREAM]


def sample(key: Key) -> Any:
    name = key.path.rpartition(".")[2]
    return UNSET[name] if name in UNSET else DEFAULTS[home(key)][key.path]


def home(key: Key) -> str:
    return "kubernetes" if key.only in (ClusterProfile.KUBERNETES, MachinesKind.LAB) else "openshift"


def with_key(key: Key, name: str | None = None, profile: str | None = None) -> dict[str, Any]:
    """A file with this one key, optionally under another name."""
    path = key.path if name is None else f"{key.path.rpartition('.')[0]}.{name}".lstrip(".")
    value = sample(key)
    if "[]." in path:
        path, _, last = path.partition("[].")
        value = [{last: value}]
    return hardway_config.document(profile or home(key), **{path.replace(".", "__"): value})


def taken(document: dict[str, Any]) -> tuple[bool, bool]:
    """Whether the schema and whether the reader takes a document."""
    is_valid = bool(VALIDATOR.is_valid(document))
    try:
        read_cluster(yaml.safe_dump(document).encode())
    except RenderError:
        return is_valid, False
    return is_valid, True


def read(kind: ValueType, value: Any) -> tuple[Any, list[str]]:
    section = YamlSection({"key": value}, "", [])
    return kind.read(section, "key"), section.problems


def test_it_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(schema())


def test_schema_and_reader_accept_every_key_of_the_table() -> None:
    assert [key.path for key in OPTIONAL if taken(with_key(key)) != BOTH] == []


def test_schema_and_reader_refuse_a_key_beside_every_key() -> None:
    assert [key.path for key in OPTIONAL if taken(with_key(key, "unheardOf")) != NEITHER] == []


def test_schema_and_reader_refuse_a_key_where_it_means_nothing() -> None:
    for key in [key for key in KEYS if key.only is not None]:
        document = with_key(key, profile="openshift" if home(key) == "kubernetes" else "kubernetes")
        assert taken(document) == NEITHER, key.path
        if key.only is MachinesKind.LIBVIRT:
            assert taken({**document, "machines": "libvirt"}) == BOTH, key.path
        if key.only is MachinesKind.LAB:
            assert taken({**with_key(key), "machines": "libvirt"}) == NEITHER, key.path


def test_schema_and_reader_miss_what_is_needed() -> None:
    document = hardway_config.document()
    for path in [key.path for key in KEYS if key.is_needed]:
        assert taken({name: value for name, value in document.items() if name != path}) == NEITHER, path


def test_schema_and_reader_refuse_wrong_values() -> None:
    wrong: tuple[dict[str, Any], ...] = (
        *({"name": "A"}, {"name": 5}, {"networks__hostPrefix": 129}, {"nodes__masters__count": "3"}),
        *({"konnectivity": "maybe"}, {"access__sshKeys": "x"}, {"libvirt__uplink": "a b"}, {"nodes": []}),
        *({"networks__machine": "10.0.0.0"}, {"kind": "Pod"}, {"profile": "lab"}, {"nodes__workers__machines": {}}),
    )
    assert [one for one in wrong if taken(hardway_config.document(**one)) != NEITHER] == []


def test_schema_and_reader_take_nothing_for_absence() -> None:
    for path in ("networks", "networks__dhcp", "nodes__masters__machines", "name"):
        nothing: dict[str, Any] = {path: None}
        assert taken(hardway_config.document("openshift", **nothing)) == BOTH, path


@pytest.mark.parametrize(
    ("kind", "value", "meant"),
    [
        (KINDS[0], "abc", "abc"),
        (KINDS[1], ["a", "b"], ("a", "b")),
        (KINDS[2], 9, 9),
        (KINDS[3], "kubernetes", ClusterProfile.KUBERNETES),
        (ON_OFF, True, Switch.ON),
        (ON_OFF, "auto", Switch.AUTO),
        (KINDS[5], "v1", "v1"),
    ],
)
def test_right_values_are_read(kind: ValueType, value: Any, meant: Any) -> None:
    assert read(kind, value) == (meant, [])


def test_addresses_and_networks_are_read() -> None:
    assert [str(read(ADDRESS, "10.0.0.1")[0]), str(read(NETWORK, "10.0.0.0/8")[0])] == ["10.0.0.1", "10.0.0.0/8"]
    assert read(ADDRESS, "10.0.0")[1]
    assert read(NETWORK, "10.0.0.1/8")[1]


def test_a_wrong_switch_is_named_by_its_path() -> None:
    section = YamlSection({"key": "maybe"}, "above", [])
    ON_OFF.read(section, "key")
    assert section.problems == ["above.key 'maybe': must be auto or on or off"]


@given(kind=st.sampled_from(KINDS), value=json_values())
@settings(max_examples=200, deadline=None)
def test_a_kind_and_its_schema_agree_on_any_value(kind: ValueType, value: Any) -> None:
    # Absence is the key's matter; JSON takes 3.0 for an integer; Python's $ overlooks a line break.
    if value is None or (isinstance(value, float) and value.is_integer()) or "\n" in repr(value).replace("\\n", "\n"):
        return
    _, problems = read(kind, value)
    assert (not problems) == jsonschema.Draft202012Validator(kind.schema).is_valid(value)


def test_every_key_is_spelled_as_kubernetes_does_and_explained_in_a_sentence() -> None:
    for key in KEYS:
        assert re.fullmatch(r"([a-z][A-Za-z]*(\[\])?\.)*[a-z][A-Za-z]*", key.path)
        assert re.fullmatch(r"[^\n]{4,230}\.", key.about), key.path


def test_every_place_has_a_number_of_its_own_in_the_network_and_masters_end_before_workers_begin() -> None:
    numbers = [fixed.value for fixed in FixedAddress]
    assert len(set(numbers)) == len(numbers)
    assert max(numbers) < MACHINE_NETWORK.num_addresses - 1
    assert FixedAddress.MASTER.value + MAX_MASTERS <= FixedAddress.WORKER.value


@pytest.mark.parametrize("options", WISHES)
def test_it_is_a_valid_file_of_that_cluster(options: ExampleOptions) -> None:
    content = example(options)
    cluster = read_cluster(content).cluster
    assert (cluster.profile, cluster.machines) == (options.profile, options.machines)
    assert (len(cluster.masters), len(cluster.workers)) == (options.masters, options.workers)
    jsonschema.validate(yaml.safe_load(content), schema())


@pytest.mark.parametrize("options", WISHES)
def test_every_key_that_means_something_is_explained(options: ExampleOptions) -> None:
    text = example(options).decode()
    words = " ".join(text.replace("#", " ").split())
    for key in KEYS:
        is_meant = key.only in (None, options.profile, options.machines)
        if "[]" not in key.path and not (key.path == "nodes.workers.firstAddress" and not options.workers):
            assert (f"{key.path.rpartition('.')[2]}: " in text) or not is_meant, key.path
        if is_meant and "[]" not in key.path:
            assert key.about in words


@pytest.mark.parametrize("options", WISHES)
def test_what_its_comments_show_holds_already(options: ExampleOptions) -> None:
    text = example(options).decode()
    samples = (
        r"(\s*)# ((?:sshKeys|sshKeyFile|directory|tunnelArchive|mac|interface|pullSecretFile|  - \{|machines)\b.*)"
    )
    kept = [line for line in text.splitlines() if not re.fullmatch(samples, line) and "#   -" not in line]
    bare = "\n".join(re.sub(r"^(\s*)# ([a-zA-Z]+: \S.*)$", r"\1\2", line) for line in kept)
    # Explanations have a colon too; they begin with a word that is no key.
    bare = "\n".join(line for line in bare.splitlines() if not re.match(r"(lab|openshift): ", line))
    assert read_cluster(bare.encode()).cluster == read_cluster(text.encode()).cluster


def test_keys_and_names_can_be_given() -> None:
    options = ExampleOptions(ClusterProfile.KUBERNETES, MachinesKind.LAB, 1, 1, "mine", (hardway.SSH_KEY,))
    cluster = read_cluster(example(options)).cluster
    assert (cluster.name, cluster.access.ssh_keys) == ("mine", (hardway.SSH_KEY,))


def test_a_cluster_that_cannot_be_is_refused() -> None:
    with pytest.raises(RenderError, match="RHCOS does not run in namespaces"):
        example(ExampleOptions(ClusterProfile.OPENSHIFT, MachinesKind.LAB, 3, 2))
