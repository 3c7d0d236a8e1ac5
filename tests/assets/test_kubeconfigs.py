"""Kubeconfigs that carry everything with them."""

import base64
from pathlib import Path

from umbilical.assets.kubeconfigs import kubeconfig
from umbilical.assets.tree import yaml_bytes
from umbilical.cluster.kubeconfig import load
from umbilical.pki.pem import KeyPair


def test_a_reader_finds_server_authority_and_user(tmp_path: Path) -> None:
    path = tmp_path / "admin.kubeconfig"
    made = kubeconfig("admin", "https://[fd91::10]:6443", b"authority", KeyPair(b"certificate", b"key"))
    path.write_bytes(yaml_bytes(made))
    found = load(path)
    assert found.context_name == "admin"
    assert found.cluster.server == "https://[fd91::10]:6443"
    assert found.cluster.certificate_auth_data == base64.b64encode(b"authority").decode()
    assert found.user is not None
    assert found.user.client_cert_data == base64.b64encode(b"certificate").decode()
    assert found.user.client_key_data == base64.b64encode(b"key").decode()


def test_it_names_no_file() -> None:
    text = yaml_bytes(kubeconfig("admin", "https://localhost:6443", b"a", KeyPair(b"b", b"c"))).decode()
    assert "/" not in text.replace("https://", "")


def test_the_cluster_can_have_a_name_of_its_own() -> None:
    made = kubeconfig("admin", "https://localhost:6443", b"a", KeyPair(b"b", b"c"), "localhost")
    assert made["clusters"][0]["name"] == made["contexts"][0]["context"]["cluster"] == "localhost"
