"""Explanations: found by all names that users type, in every output format."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support import hardway
from tests.support.hardway_everything import everything, usual

from umbilical.checks.report import group_of
from umbilical.hardway.config.cluster import ClusterProfile
from umbilical.hardway.explain import entry as forms
from umbilical.hardway.explain import library, lookup
from umbilical.hardway.explain.entry import Explanation, ExplanationKind, Topic, TopicKind, from_topic, sentence
from umbilical.hardway.explain.library import BY_HAND, stage_of
from umbilical.hardway.explain.lookup import filled
from umbilical.hardway.lint.catalogue import RULES
from umbilical.hardway.stages import catalogue
from umbilical.hardway.stages.artifact_stages import ArtifactStage

ENTRIES = library.entries()
FILES = (ExplanationKind.FILE, ExplanationKind.CERTIFICATE)
# What the made-up MachineConfig brings is not ours to explain.
FROM_BASE = frozenset(
    {
        *("00-default", "configure-ovs.sh", "criometricsproxy.yaml"),
        *("nodeip-configuration.service", "ovs-configuration.service"),
    }
)
STAGES = [stage for stage in catalogue.stages() if isinstance(stage, ArtifactStage)]
CLUSTER = hardway.cluster()
LINE = "openssl verify -CAfile artifacts/tls/bundles/etcd-ca-bundle.crt artifacts/tls/etcd-serving-bootstrap.crt -x509"
ENTRY = Explanation(
    ExplanationKind.CERTIFICATE, "etcd-client", "What " + "word " * 40, 5, readers="kube-apiserver", by_hand=LINE
)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("what a person needs", "What a person needs."),
        ("etcd's certificates", "etcd's certificates."),
        ("kube-apiserver (--client-ca-file)", "kube-apiserver (--client-ca-file)."),
        ("All is well.", "All is well."),
        ("", ""),
    ],
)
def test_words_become_sentences(text: str, told: str) -> None:
    assert sentence(text) == told


def test_an_entry_says_what_it_has_to_say_in_order_and_where_it_belongs() -> None:
    topic = Topic(TopicKind.FLAG, "kubelet --node-ip", 8, "an address", "kubelet", "another one", "grep x y", "alike")
    entry = from_topic(topic)
    assert entry.rows == [
        ("what", "An address."),
        ("readers", "kubelet."),
        ("without", "Another one."),
        ("by hand", "grep x y"),
        ("installer", "Alike."),
    ]
    assert entry.belongs == "flag, stage 08"
    assert entry.aliases == ("--node-ip", "node-ip")


def test_what_is_not_said_is_left_out() -> None:
    assert Explanation(ExplanationKind.CODE, "UMB001", "wrong").rows == [("what", "wrong")]


def kinds(asked: str) -> set[ExplanationKind]:
    return {entry.kind for entry in lookup.find(ENTRIES, asked)}


@pytest.mark.parametrize("profile", ClusterProfile)
def test_every_artifact_is_explained_by_its_path(profile: ClusterProfile) -> None:
    paths = {path for made in (everything, usual) for path in made(profile).assets}
    assert len(paths) > 100
    assert [path for path in sorted(paths) if not kinds(f"artifacts/{path}") & set(FILES)] == []


@pytest.mark.parametrize("profile", ClusterProfile)
def test_every_file_and_unit_of_a_node_is_explained(profile: ClusterProfile) -> None:
    subject = everything(profile)
    facts = subject.facts()
    configs = [facts.ignition(node) for node in subject.cluster.nodes]
    found = {file.path for config in configs for file in config.files}
    found |= {f"/etc/systemd/system/{unit.name}" for config in configs for unit in config.units}
    wanted = [path for path in sorted(found) if path.rpartition("/")[2] not in FROM_BASE]
    assert len(wanted) > 20
    assert [path for path in wanted if not kinds(path) & set(FILES)] == []


@pytest.mark.parametrize("profile", ClusterProfile)
def test_every_flag_of_every_static_pod_is_explained_for_its_program(profile: ClusterProfile) -> None:
    subject = everything(profile)
    words = {
        word.partition("=")[0]
        for asset in subject.assets.values()
        if asset.path.split("/")[0] in ("static-pods", "late-static-pods") and asset.path.endswith(".yaml")
        for document in subject.facts().documents(asset.path)
        for container in document.get("spec", {}).get("containers", [])
        for word in [*container.get("command", []), *container.get("args", [])]
        if word.startswith("--")
    }
    assert len(words) > 50
    assert [word for word in sorted(words) if ExplanationKind.FLAG not in kinds(word)] == []


def test_every_rule_is_explained_with_a_line_to_type() -> None:
    assert [rule.id for rule in RULES if kinds(rule.id) != {ExplanationKind.RULE}] == []
    assert {rule.id for rule in RULES} == set(BY_HAND)


def test_an_explanation_says_what_it_is_who_reads_it_what_breaks_and_how_to_see_it() -> None:
    def is_whole(one: Explanation) -> bool:
        return all((one.what, one.readers, one.without, one.by_hand, one.installer or one.kind is ExplanationKind.RULE))

    assert [one.name for one in ENTRIES if not is_whole(one) or "\n" in one.by_hand] == []


def names(asked: str) -> list[str]:
    return [entry.name for entry in lookup.find(ENTRIES, asked)]


@pytest.mark.parametrize(
    ("name", "asked"),
    {
        "bootstrap.ign": ["bootstrap.ign"],
        "master-N.ign": ["artifacts/ignition/master-2.ign"],
        "kubelet.conf": ["/etc/kubernetes/kubelet.conf"],
        "domains": ["infrastructure/domains/worker-0.xml"],
        "--etcd-prefix": ["--etcd-prefix", "etcd-prefix", "--etcd-prefix=/registry"],
        "kubelet --node-ip": ["kubelet --node-ip", "node-ip"],
        "kubelet-signer": ["kubelet-signer", "tls/kubelet-signer.key"],
        "etcd-peer-NODE": ["/etc/kubernetes/static-pod-resources/etcd-peer-master-0.crt"],
        "PKI-01": ["pki-01"],
    }.items(),
)
def test_one_thing_is_found_by_each_of_its_names(name: str, asked: list[str]) -> None:
    assert [names(one) for one in asked] == [[name]] * len(asked)


def test_a_name_that_two_things_have_finds_both() -> None:
    assert set(names("root-ca.crt")) == {"root-ca", "machine-config/tls/root-ca.crt"}
    assert names("artifacts/machine-config/tls/root-ca.crt") == ["machine-config/tls/root-ca.crt"]


def test_a_program_before_a_flag_chooses_among_several() -> None:
    assert len(names("--kubeconfig")) > 1
    assert names("kubelet --kubeconfig") == ["kubelet --kubeconfig"]


def test_an_unknown_name_finds_nothing_and_names_what_is_near() -> None:
    assert names("kubelet-singer") == []
    assert lookup.nearest(ENTRIES, "kubelet-singer")[0] == "kubelet-signer"
    assert lookup.nearest(ENTRIES, "--etcd-prefiks")[0] == "--etcd-prefix"
    assert lookup.nearest(ENTRIES, "zzzzzzzz") == []


@given(st.text(max_size=40))
def test_whatever_is_typed_is_answered(asked: str) -> None:
    found = lookup.find(ENTRIES, asked)
    assert all(entry in ENTRIES for entry in found)
    assert len(lookup.nearest(ENTRIES, asked)) <= lookup.MAX_NEAREST


def test_a_rule_that_a_stage_asks_stands_in_its_page() -> None:
    for stage in STAGES:
        asked = [rule.id for rule in RULES if group_of(rule.id) in stage.groups or rule.id in stage.rules]
        assert {stage_of(one) for one in asked} == {stage.number}


def test_lines_of_certificates_name_files_that_exist() -> None:
    assert "artifacts/tls/etcd-serving-bootstrap.crt" in BY_HAND["PKI-01"]


def line(asked: str, folder: str = "demo") -> str:
    return filled(lookup.find(ENTRIES, asked)[0], CLUSTER, folder, asked).by_hand


def test_addresses_and_the_directory_take_the_place_of_words() -> None:
    assert line("etcd-bootstrap.yaml") == (
        "etcdctl --endpoints=https://192.168.126.100:2379 --cacert=demo/artifacts/tls/bundles/etcd-ca-bundle.crt"
        " --cert=demo/artifacts/tls/etcd-client.crt --key=demo/artifacts/tls/etcd-client.key endpoint health"
    )
    assert "@192.168.126.1 api-int.ocp4.example.com" in line("Corefile")


def test_the_node_that_was_asked_for_is_the_one_in_the_line() -> None:
    assert line("etcd-peer-master-2", ".").endswith("artifacts/tls/etcd-peer-master-2.crt")
    assert line("etcd-peer-bootstrap.crt", ".").endswith("artifacts/tls/etcd-peer-bootstrap.crt")


def test_a_command_of_ours_gets_the_clusters_directory() -> None:
    entry = Explanation(ExplanationKind.CHECK, "x", "x", by_hand="umbilical stage status 04 --dir DIR; git -C DIR log")
    assert filled(entry, CLUSTER, "demo").by_hand == "umbilical stage status 04 --dir demo; git -C . log"


def test_words_that_only_begin_alike_stay() -> None:
    entry = Explanation(ExplanationKind.CODE, "x", "x", by_hand="oc get NODES DOMAIN DOMAIN-NAME")
    assert filled(entry, CLUSTER, ".").by_hand == "oc get NODES ocp4.example.com DOMAIN-NAME"


def test_text_is_wrapped_and_the_line_to_be_typed_is_not() -> None:
    lines = forms.as_text([ENTRY]).splitlines()
    assert lines[0] == "etcd-client  (certificate, stage 05)"
    assert f"by hand    $ {LINE}" in lines
    assert all(len(line) <= forms.WIDTH for line in lines if LINE not in line)


def test_json_has_every_field_by_name() -> None:
    value = json.loads(forms.as_json([ENTRY, ENTRY]))
    assert value["kind"] == "Explanation"
    assert [one["by_hand"] for one in value["entries"]] == [LINE, LINE]


def test_markdown_has_the_line_in_a_fence() -> None:
    assert f"```console\n$ {LINE}\n```" in forms.as_markdown([ENTRY])


def test_what_markdown_would_read_as_a_sign_becomes_code() -> None:
    assert (
        forms.prose("see <node id>.xml and ETCD_NAME, `a_b` too") == "see `<node` `id>.xml` and `ETCD_NAME`, `a_b` too"
    )
