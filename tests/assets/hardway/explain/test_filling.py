"""Lines to be typed, with a cluster's own values in them."""

from tests.support import hardway

from umbilical.assets.hardway.explain import library, lookup
from umbilical.assets.hardway.explain.entry import Entry, EntryKind
from umbilical.assets.hardway.explain.filling import filled

CLUSTER = hardway.cluster()
ENTRIES = library.entries()


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


def test_words_that_only_begin_alike_stay() -> None:
    entry = Entry(EntryKind.CODE, "x", "x", by_hand="oc get NODES DOMAIN DOMAIN-NAME")
    assert filled(entry, CLUSTER, ".").by_hand == "oc get NODES ocp4.example.com DOMAIN-NAME"
