"""Explanations as people, programs and pages get them."""

import json

from umbilical.assets.hardway.explain import forms
from umbilical.assets.hardway.explain.entry import Entry, EntryKind

LINE = "openssl verify -CAfile artifacts/tls/bundles/etcd-ca-bundle.crt artifacts/tls/etcd-serving-bootstrap.crt -x509"
ENTRY = Entry(EntryKind.CERTIFICATE, "etcd-client", "What " + "word " * 40, 5, readers="kube-apiserver", by_hand=LINE)


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
