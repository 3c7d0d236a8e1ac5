"""What differs between two trees: files, texts, certificates, Ignition configs and objects; nothing secret is shown."""

import base64
import json
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.manifests import MINIMAL, json_values, with_container

from umbilical.hardway.artifacts.diff import FORMATTING, compare_content, compare_ignition, compare_trees, note_of
from umbilical.hardway.artifacts.diff_objects import (
    HIDDEN,
    MAX_SHOWN,
    ArtifactDiff,
    DiffKind,
    as_json,
    change_of,
    compare_certificates,
    compare_objects,
    described,
    shortened,
    text_lines,
    values,
)
from umbilical.manifests.tree import Asset
from umbilical.pki.authority import Authority
from umbilical.pki.pem import KeyPair, join_bundle
from umbilical.pki.profiles import KeyType, server_profile

NOW = datetime(2026, 11, 16, tzinfo=UTC)
DAY = timedelta(days=1)
SUPER_SECRET = "c3VwZXJzZWNyZXQ="


def test_a_change_follows_from_what_is_there() -> None:
    assert [change_of(None, 1), change_of(1, None), change_of(1, 2)] == [
        *(DiffKind.CREATED, DiffKind.REMOVED, DiffKind.CHANGED)
    ]


def test_json_has_only_what_says_something() -> None:
    part = ArtifactDiff(
        "a",
        DiffKind.CHANGED,
        parts=(values("b", "1", "2"), ArtifactDiff("c", DiffKind.REMOVED, note="n", lines=("-x",))),
    )
    assert as_json(part) == {
        "place": "a",
        "change": "changed",
        "parts": [
            {"place": "b", "change": "changed", "old": "1", "new": "2"},
            {"place": "c", "change": "removed", "note": "n", "lines": ["-x"]},
        ],
    }


def test_long_and_dangerous_values_are_made_harmless() -> None:
    assert shortened("x" * 500) == "x" * MAX_SHOWN + "..."
    assert shortened("a\x1b[2J\n") == "a\\x1b[2J\\n"


def test_files_are_compared_in_the_order_of_their_paths() -> None:
    old = {one.path: one for one in (Asset("a", b"1", 0o644), Asset("b", b"1", 0o644), Asset("same", b"1", 0o600))}
    new = [Asset("same", b"1", 0o600), Asset("c", b"1", 0o644), Asset("b", b"2", 0o644)]
    parts = compare_trees(old, new)
    assert [(part.place, part.change) for part in parts] == [
        ("a", DiffKind.REMOVED),
        ("b", DiffKind.CHANGED),
        ("c", DiffKind.CREATED),
    ]
    assert parts[1].parts[0].lines[-2:] == ("-1", "+2")


@pytest.mark.parametrize(
    ("path", "old", "new", "note"),
    [
        ("tls/a.key", b"one", b"two", "key differs"),
        ("somewhere.txt", b"one", b"-----BEGIN PRIVATE KEY-----\nQUJD\n-----END PRIVATE KEY-----\n", "key differs"),
        ("tls/a.pub", b"one", b"two", "public key differs"),
        ("auth/kubeadmin-password", b"one", b"two", HIDDEN),
        ("machine-config/pull-secret", b"one", b"two", HIDDEN),
        ("a.json", b'{"a":1}', b'{ "a": 1 }', FORMATTING),
        ("image.bin", b"\xff\x00", b"\xff", "2 -> 1 bytes, not shown"),
    ],
)
def test_what_is_not_shown_has_a_note(path: str, old: bytes, new: bytes, note: str) -> None:
    (part,) = compare_content(path, old, new)
    assert part == ArtifactDiff(part.place, DiffKind.CHANGED, note=note)


@pytest.mark.parametrize("path", ["a.crt", "a.ign", "a.yaml", "etc/kubernetes/kubeconfig"])
def test_what_its_name_does_not_hold_is_compared_as_text(path: str) -> None:
    (part,) = compare_content(path, b"one: [", b"two: [")
    assert part.place == "content"


def test_only_certificates_need_words_beside_their_path() -> None:
    assert note_of("a.yaml", b"a: 1") == note_of("a.crt", b"nonsense") == ""


@given(
    path=st.sampled_from(["a.crt", "a.ign", "a.yaml", "a.key", "a.pub", "a.txt", "kubeconfig"]),
    old=st.none() | st.binary(max_size=40),
    new=st.binary(max_size=40),
)
@settings(max_examples=150, deadline=None)
def test_any_two_contents_can_be_compared(path: str, old: bytes | None, new: bytes) -> None:
    assert bool(compare_content(path, old, new)) == (old != new)


@cache
def signer(name: str = "signer") -> Authority:
    return Authority.create(name, NOW, 10 * DAY, KeyType.ECDSA_P256)


def leaf(*names: str, life: timedelta = DAY) -> KeyPair:
    return signer().issue(server_profile("server", names, KeyType.ECDSA_P256), NOW, life)


def test_the_same_certificate_has_no_differences() -> None:
    pair = leaf("a")
    assert compare_certificates(pair.certificate, pair.certificate) == ()


def test_names_and_times_are_compared() -> None:
    parts = compare_certificates(leaf("a").certificate, leaf("a", "10.0.0.1", life=2 * DAY).certificate)
    assert parts is not None
    assert (parts[0].place, parts[0].lines) == ("names", ("+10.0.0.1",))
    told = {part.place: (part.old or "", part.new or "") for part in parts}
    assert told["not after"] == ("2026-11-17T00:00:00Z", "2026-11-18T00:00:00Z")
    assert told["key"][0] != told["key"][1]
    assert "subject" not in told


def test_bundles_are_compared_by_subject() -> None:
    one, other = signer().pair.certificate, signer("other").pair.certificate
    parts = compare_certificates(one, join_bundle(one, other))
    assert parts is not None
    assert [(part.place, part.change) for part in parts] == [("certificate CN=other", DiffKind.CREATED)]


def test_a_member_of_a_bundle_that_was_made_anew_is_told_by_field() -> None:
    again = Authority.create("other", NOW, DAY, KeyType.ECDSA_P256).pair.certificate
    one = signer().pair.certificate
    parts = compare_certificates(join_bundle(one, signer("other").pair.certificate), join_bundle(one, again))
    assert parts is not None
    (part,) = parts
    assert part.place == "certificate CN=other"
    assert {inner.place for inner in part.parts} >= {"not after", "key", "serial"}


def test_a_certificate_is_described_in_one_line() -> None:
    text = described(join_bundle(signer().pair.certificate, signer("other").pair.certificate))
    assert text.startswith("CN=signer, until 2026-11-26T00:00Z, key ECDSA P-256 ")
    assert text.endswith(" and 1 more")


def config(files: dict[str, tuple[str, int]], *units: dict[str, Any], passwd: dict[str, Any] | None = None) -> bytes:
    entries = [
        {"path": path, "mode": mode, "contents": {"source": f"data:;base64,{base64.b64encode(text.encode()).decode()}"}}
        for path, (text, mode) in files.items()
    ]
    value: dict[str, Any] = {"ignition": {"version": "3.4.0"}, "storage": {"files": entries}}
    return json.dumps({**value, "systemd": {"units": list(units)}, **({"passwd": passwd} if passwd else {})}).encode()


def compared(old: bytes, new: bytes) -> tuple[ArtifactDiff, ...]:
    parts = compare_ignition(old, new, compare_content)
    assert parts is not None
    return parts


def test_files_are_decoded_and_compared_by_their_kind() -> None:
    old = config({"/etc/pod.yaml": ("kind: Pod\nmetadata: {name: x}\nspec: {a: 1}\n", 420)})
    new = config({"/etc/pod.yaml": ("kind: Pod\nmetadata: {name: x}\nspec: {a: 2}\n", 384)})
    (part,) = compared(old, new)
    assert part.place == "file /etc/pod.yaml"
    mode, pod = part.parts
    assert (mode.place, mode.old, mode.new) == ("mode", "0644", "0600")
    assert pod == ArtifactDiff("Pod x", DiffKind.CHANGED, parts=(ArtifactDiff("spec.a", DiffKind.CHANGED, "1", "2"),))


def test_files_that_come_and_go_are_one_line_each() -> None:
    old, new = config({"/a": ("1", 420)}), config({"/b": ("1", 420)})
    assert compared(old, new) == (ArtifactDiff("file /a", DiffKind.REMOVED), ArtifactDiff("file /b", DiffKind.CREATED))


def test_keys_in_a_config_are_not_shown() -> None:
    old, new = (config({"/etc/x.key": (text, 384)}) for text in ("secret one", "secret two"))
    (part,) = compared(old, new)
    assert part.parts[0].note == "key differs"
    assert "secret" not in repr(part)


def test_units_are_compared_by_lines() -> None:
    old, new = (config({}, {"name": "a.service", "contents": f"[Service]\n{one}\n"}) for one in ("X=1", "X=2"))
    (part,) = compared(old, new)
    assert part.place == "unit a.service"
    assert part.parts[0].lines[-2:] == ("-X=1", "+X=2")


def test_other_fields_are_named_by_their_path_and_hashes_hidden() -> None:
    old, new = (
        config({}, passwd={"users": [{"name": "core", "sshAuthorizedKeys": [key], "passwordHash": key}]})
        for key in ("one", "two")
    )
    told = {part.place: part for part in compared(old, new)}
    assert told["passwd.users[0].sshAuthorizedKeys[0]"].new == "two"
    assert told["passwd.users[0].passwordHash"].note == HIDDEN


def test_a_whole_config_that_appears_is_all_new() -> None:
    parts = compare_ignition(None, config({"/a": ("1", 420)}), compare_content)
    assert parts == (ArtifactDiff("file /a", DiffKind.CREATED),)


def dumped(*documents: Any) -> bytes:
    return yaml.safe_dump_all(documents).encode()


def compared_objects(old: Any, new: Any) -> tuple[ArtifactDiff, ...]:
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
    (part,) = compared_objects(MINIMAL, with_container(MINIMAL, image="localhost/other:lab"))
    assert part.place == "Pod sample"
    assert part.parts == (
        ArtifactDiff("spec.containers[main].image", DiffKind.CHANGED, "localhost/umbilical:lab", "localhost/other:lab"),
    )


def test_flags_are_compared_as_entries() -> None:
    old, new = (with_container(MINIMAL, args=args) for args in (["--a=1", "--b=1"], ["--a=1", "--b=2", "--c"]))
    (part,) = compared_objects(old, new)
    assert part.parts[0].place == "spec.containers[main].args"
    assert part.parts[0].lines == ("---b=1", "+--b=2", "+--c")


def test_another_order_is_told_as_such() -> None:
    old, new = (with_container(MINIMAL, args=args) for args in (["a", "b"], ["b", "a"]))
    assert compared_objects(old, new)[0].parts[0].note == "only the order differs"


def test_documents_that_come_and_go_are_told_once() -> None:
    parts = compare_objects(dumped(MINIMAL), dumped(MINIMAL, secret(kubeadmin="eA==")))
    assert parts == (ArtifactDiff("Secret kube-system/kubeadmin", DiffKind.CREATED),)


def test_what_is_in_a_secret_is_not_shown() -> None:
    old, new = secret(password=SUPER_SECRET), secret(password="b3RoZXI=", added=SUPER_SECRET)
    new["type"] = "Opaque"
    (part,) = compared_objects(old, new)
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
    (part,) = compared_objects(old, new)
    told = {one.place: one for one in part.parts}
    assert (told["data.tls.crt"].old or "").startswith("CN=one, until")
    assert told["data.tls.key"].note == HIDDEN
    assert told["data.tls.key"].new is None


def test_keys_in_kubeconfigs_are_not_shown() -> None:
    old, new = ({"users": [{"name": "admin", "user": {"client-key-data": one}}]} for one in ("AAAA", "BBBB"))
    assert compared_objects(old, new) == (
        ArtifactDiff("users[admin].user.client-key-data", DiffKind.CHANGED, note=HIDDEN),
    )


def test_pull_secrets_and_data_urls_are_not_shown() -> None:
    old, new = ({"auths": {"quay.io": {"auth": one}}, "source": f"data:,{one}"} for one in ("QUJD", "REVG"))
    assert [part.note for part in compared_objects(old, new)] == [HIDDEN, HIDDEN]


def test_longer_texts_are_compared_by_lines() -> None:
    old, new = ({"kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"x": one}} for one in ("a\nb\n", "a\nc\n"))
    (part,) = compared_objects(old, new)
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
