"""Kubernetes objects in their plainest forms."""

import base64

from umbilical.assets.objects import config_map, manifest, secret


def test_a_secrets_values_are_encoded_and_it_is_opaque_unless_told_otherwise() -> None:
    found = secret({"name": "a"}, {"tls.key": b"\x00key"})
    assert (found["kind"], found["type"]) == ("Secret", "Opaque")
    assert base64.b64decode(found["data"]["tls.key"]) == b"\x00key"
    assert secret({"name": "a"}, {}, "kubernetes.io/tls")["type"] == "kubernetes.io/tls"


def test_a_config_maps_values_stay_text() -> None:
    assert config_map({"name": "a"}, {"k": "v"})["data"] == {"k": "v"}


def test_a_manifest_has_its_parts_in_the_usual_order() -> None:
    assert list(manifest("v1", "Thing", {"name": "a"}, spec={})) == ["apiVersion", "kind", "metadata", "spec"]
