"""What looks secret is hidden, what an installer's configs are full of is not."""

from typing import Any

import pytest

from umbilical.ignition.secrets import is_secret_field, is_secret_file


@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("/opt/openshift/tls/root-ca.key", b""),
        ("/opt/openshift/auth/kubeconfig", b""),
        ("/etc/kubernetes/kubeconfig-loopback", b""),
        ("/root/.docker/config.json", b"{}"),
        ("/etc/mcc/bootstrap/machineconfigcontroller-pull-secret", b""),
        ("/a", b"x\n-----BEGIN RSA PRIVATE KEY-----\n"),
        ("/a", b"apiVersion: v1\nkind: Secret\n"),
        ("/a", b"- kind: 'Secret'\n"),
        ("/a", b'{"apiVersion":"v1","kind":"Secret"}'),
        ("/a", b'{"items":[{"apiVersion":"v1", "kind" : "Secret"}]}'),
        ("/a", b'{"auths":{}}'),
        ("/a", b"users:\n- user:\n    client-key-data: AAAA\n"),
        ("/a", b"token eyJhbGciOiJSUzI1NiJ9.e30.x"),
    ],
)
def test_a_secret_is_known_by_its_name_or_its_content(path: str, content: bytes) -> None:
    assert is_secret_file(path, content)
    assert is_secret_file(path, None, content)


@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("/usr/local/bin/bootkube.sh", b"oc get secrets\necho kind: $KIND\n"),
        ("/opt/openshift/manifests/cvo-overrides.yaml", b"kind: ClusterVersion\n"),
        ("/opt/openshift/tls/root-ca.crt", b"-----BEGIN CERTIFICATE-----\n"),
        ("/a", b"kind: SecretStore\n"),
        ("/a", None),
    ],
)
def test_an_ordinary_file_is_shown(path: str, content: bytes | None) -> None:
    assert not is_secret_file(path, content)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("passwd.users[0].passwordHash", "$6$x"),
        ("passwd.users[0]", {"name": "core", "passwordHash": "$6$x"}),
        ("ignition.config.replace.source", "https://example.com/b.ign?sig=abc"),
        ("ignition.config.merge", [{"source": "data:;base64,YQ=="}]),
        ("ignition.config.replace.httpHeaders[0].value", "Bearer x"),
        ("x", ["-----BEGIN PRIVATE KEY-----"]),
        ("x", "\ud800 PRIVATE KEY-----"),
    ],
)
def test_a_field_is_secret_by_its_name_or_its_value(place: str, value: Any) -> None:
    assert is_secret_field(place, value)


@pytest.mark.parametrize("value", [None, 3, True, "ssh-rsa AAAA", "https://example.com/b.ign", {"a": ["b"]}])
def test_an_ordinary_field_is_shown(value: Any) -> None:
    assert not is_secret_field("passwd.users[0].sshAuthorizedKeys[0]", value)
