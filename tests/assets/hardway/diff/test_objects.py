"""YAML by object and field path, and nothing secret in it."""

import base64
from datetime import UTC, datetime, timedelta
from typing import Any

import yaml
from hypothesis import given, settings
from tests.support.manifests import MINIMAL, json_values, with_container

from umbilical.assets.hardway.diff.objects import compare_objects, text_lines
from umbilical.assets.hardway.diff.part import HIDDEN, Change, Part
from umbilical.pki.authority import Authority
from umbilical.pki.profiles import KeyType

NOW, DAY = datetime(2026, 11, 16, tzinfo=UTC), timedelta(days=1)
SUPER_SECRET = "c3VwZXJzZWNyZXQ="


def dumped(*documents: Any) -> bytes:
    return yaml.safe_dump_all(documents).encode()


def compared(old: Any, new: Any) -> tuple[Part, ...]:
    parts = compare_objects(dumped(old), dumped(new))
    assert parts is not None
    return parts


def secret(**data: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "kubeadmin", "namespace": "kube-system"},
        "data": data,
    }


def test_objects_are_named_and_fields_by_their_path() -> None:
    (part,) = compared(MINIMAL, with_container(MINIMAL, image="localhost/other:lab"))
    assert part.place == "Pod sample"
    assert part.parts == (
        Part("spec.containers[main].image", Change.CHANGED, "localhost/umbilical:lab", "localhost/other:lab"),
    )


def test_flags_are_compared_as_entries() -> None:
    old, new = (with_container(MINIMAL, args=args) for args in (["--a=1", "--b=1"], ["--a=1", "--b=2", "--c"]))
    (part,) = compared(old, new)
    assert part.parts[0].place == "spec.containers[main].args"
    assert part.parts[0].lines == ("---b=1", "+--b=2", "+--c")


def test_another_order_is_told_as_such() -> None:
    old, new = (with_container(MINIMAL, args=args) for args in (["a", "b"], ["b", "a"]))
    assert compared(old, new)[0].parts[0].note == "only the order differs"


def test_formatting_is_no_difference() -> None:
    assert compare_objects(b"a: 1\nb: [x]\n", b'{"b": ["x"], "a": 1}') == ()


def test_documents_that_come_and_go_are_told_once() -> None:
    parts = compare_objects(dumped(MINIMAL), dumped(MINIMAL, secret(kubeadmin="eA==")))
    assert parts == (Part("Secret kube-system/kubeadmin", Change.CREATED),)


def test_what_is_in_a_secret_is_not_shown() -> None:
    old, new = secret(password=SUPER_SECRET), secret(password="b3RoZXI=", added=SUPER_SECRET)
    new["type"] = "Opaque"
    (part,) = compared(old, new)
    told = {one.place: one for one in part.parts}
    assert told["type"].new == "Opaque"
    assert told["data.password"].note == told["data.added"].note == HIDDEN
    assert SUPER_SECRET not in repr(part)


def test_a_certificate_in_a_secret_is_described() -> None:
    pair = Authority.create("one", NOW, DAY, KeyType.ECDSA_P256).pair
    other = Authority.create("two", NOW, DAY, KeyType.ECDSA_P256).pair
    old, new = (
        secret(**{"tls.crt": base64.b64encode(one.certificate).decode(), "tls.key": base64.b64encode(one.key).decode()})
        for one in (pair, other)
    )
    (part,) = compared(old, new)
    told = {one.place: one for one in part.parts}
    assert (told["data.tls.crt"].old or "").startswith("CN=one, until")
    assert told["data.tls.key"].note == HIDDEN
    assert told["data.tls.key"].new is None


def test_keys_in_kubeconfigs_are_not_shown() -> None:
    old, new = ({"users": [{"name": "admin", "user": {"client-key-data": one}}]} for one in ("AAAA", "BBBB"))
    assert compared(old, new) == (Part("users[admin].user.client-key-data", Change.CHANGED, note=HIDDEN),)


def test_pull_secrets_and_data_urls_are_not_shown() -> None:
    old, new = ({"auths": {"quay.io": {"auth": one}}, "source": f"data:,{one}"} for one in ("QUJD", "REVG"))
    assert [part.note for part in compared(old, new)] == [HIDDEN, HIDDEN]


def test_longer_texts_are_compared_by_lines() -> None:
    old, new = ({"kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"x": one}} for one in ("a\nb\n", "a\nc\n"))
    (part,) = compared(old, new)
    assert part.parts[0].lines == ("@@ -1,2 +1,2 @@", " a", "-b", "+c")


def test_what_is_no_document_is_left_to_others() -> None:
    assert compare_objects(b"a: [", b"a: 1") is None
    assert compare_objects(b"just text", b"other text") is None


def test_lines_are_compared_as_diff_does() -> None:
    assert text_lines("a\n", "a\nb\n") == ("@@ -1 +1,2 @@", " a", "+b")
    assert text_lines("x\n" * 20_001, "") == ()


@given(old=json_values(), new=json_values())
@settings(max_examples=150, deadline=None)
def test_any_two_documents_can_be_compared(old: Any, new: Any) -> None:
    parts = compare_objects(dumped(old), dumped(new))
    if old == new and isinstance(old, dict | list):
        assert parts == ()
