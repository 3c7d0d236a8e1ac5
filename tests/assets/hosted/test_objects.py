"""The forms that manifests have in common."""

from tests.support.hosted_specs import hosted_spec

from umbilical.assets.hosted.objects import config_map_volume, metadata, probe, requests, secret_volume


def test_every_object_carries_the_labels_by_which_all_are_found_together() -> None:
    head = metadata(hosted_spec(), "a", "b", {"app": "x"}, {"note": "y"})
    assert head["labels"] == {
        "app": "x",
        "app.kubernetes.io/part-of": "umbilical-hosted",
        "app.kubernetes.io/instance": "guest",
    }
    assert head["annotations"] == {"note": "y"}
    assert "annotations" not in metadata(hosted_spec(), "a", "b")


def test_keys_are_mounted_for_owner_and_group_only() -> None:
    assert secret_volume("v", "s")["secret"] == {"secretName": "s", "defaultMode": 0o640}


def test_only_the_named_keys_of_a_config_map_are_seen() -> None:
    assert config_map_volume("v", "c", {"a.crt": "b.crt"})["configMap"]["items"] == [{"key": "a.crt", "path": "b.crt"}]
    assert "items" not in config_map_volume("v", "c")["configMap"]


def test_a_probe_has_a_host_only_where_one_is_named() -> None:
    assert probe("/x", 1, "127.0.0.1", periodSeconds=3)["httpGet"]["host"] == "127.0.0.1"
    assert "host" not in probe("/x", 1)["httpGet"]


def test_nothing_is_throttled() -> None:
    assert requests("10m", "50Mi") == {"requests": {"cpu": "10m", "memory": "50Mi"}}
