"""What users type, and what they mean by it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from umbilical.assets.hardway.explain import library, lookup

ENTRIES = library.entries()


def names(asked: str) -> list[str]:
    return [entry.name for entry in lookup.find(ENTRIES, asked)]


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        ("bootstrap.ign", "bootstrap.ign"),
        ("artifacts/ignition/master-2.ign", "master-N.ign"),
        ("/etc/kubernetes/kubelet.conf", "kubelet.conf"),
        ("infrastructure/domains/worker-0.xml", "domains"),
        ("--etcd-prefix", "--etcd-prefix"),
        ("etcd-prefix", "--etcd-prefix"),
        ("--etcd-prefix=/registry", "--etcd-prefix"),
        ("kubelet --node-ip", "kubelet --node-ip"),
        ("node-ip", "kubelet --node-ip"),
        ("kubelet-signer", "kubelet-signer"),
        ("tls/kubelet-signer.key", "kubelet-signer"),
        ("/etc/kubernetes/static-pod-resources/etcd-peer-master-0.crt", "etcd-peer-NODE"),
        ("pki-01", "PKI-01"),
    ],
)
def test_one_thing_is_found_by_each_of_its_names(asked: str, name: str) -> None:
    assert names(asked) == [name]


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
