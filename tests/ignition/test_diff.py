"""What two configs say differently, what is no difference, and what is hidden."""

import copy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.ignition.configs import SCRIPT, SCRIPT_PATH, config, configs, entry, formatted, gzipped_entry, written

from umbilical.ignition.config import read_config
from umbilical.ignition.data_url import DataUrl
from umbilical.ignition.diff import ContentChange, Difference, FieldChange, compare, is_secret_field, is_secret_file

UNIT = {"name": "a.service", "enabled": True, "contents": "[Unit]\nA=b\n"}


def differences(old: dict[str, Any], new: dict[str, Any]) -> list[Difference]:
    return compare(read_config(written(old)), read_config(written(new)))


def one(old: dict[str, Any], new: dict[str, Any]) -> Difference:
    (difference,) = differences(old, new)
    return difference


@given(configs(), st.data())
def test_formatting_is_no_difference(value: dict[str, Any], data: st.DataObject) -> None:
    old, new = (read_config(data.draw(formatted(value))) for _ in "ab")
    assert compare(old, new) == []


@given(configs(), configs())
def test_any_two_configs_can_be_compared_both_ways(old: dict[str, Any], new: dict[str, Any]) -> None:
    forward, backward = differences(old, new), differences(new, old)
    opposite = {"added": "removed", "removed": "added", "changed": "changed"}
    assert {(each.place, opposite[each.change]) for each in forward} == {(each.place, each.change) for each in backward}
    for each in forward:
        for content in each.contents:
            content.lines()


def test_encoding_order_and_empty_objects_are_no_difference() -> None:
    plain = config(entry("/a", SCRIPT), entry("/b"), systemd={"units": [UNIT, {"name": "b.service"}]})
    percent = DataUrl("", False, SCRIPT).format()
    for same in (gzipped_entry("/a", SCRIPT), entry("/a", contents={"source": percent, "compression": ""})):
        other = config(entry("/b", group={}), same, passwd={}, systemd={"units": [{"name": "b.service"}, UNIT]})
        assert differences(plain, other) == []


def test_a_changed_script_is_compared_line_by_line() -> None:
    found = one(config(entry(SCRIPT_PATH, b"a\nb\n")), config(entry(SCRIPT_PATH, b"a\nnew\nb\n")))
    (content,) = found.contents
    assert (found.kind, found.place, found.change, found.fields) == ("file", SCRIPT_PATH, "changed", ())
    assert content.lines() == ["--- old", "+++ new", "@@ -1,2 +1,3 @@", " a", "+new", " b"]


def test_mode_owner_and_unknown_fields_are_compared() -> None:
    found = one(config(entry("/a", mode=384)), config(entry("/a", mode=420, user={"name": "core"}, x=1)))
    assert found.contents == ()
    user = FieldChange("user", {"name": "root"}, {"name": "core"})
    changes = [FieldChange("mode", 384, 420), user, FieldChange("x", None, 1)]
    assert sorted(found.fields, key=repr) == sorted(changes, key=repr)


def test_a_file_that_came_or_went_shows_all_of_it() -> None:
    added = one(config(), config(entry("/a", b"x\n")))
    removed = one(config(entry("/a", b"x\n")), config())
    assert (added.change, removed.change) == ("added", "removed")
    assert added.contents == (ContentChange("contents", None, b"x\n"),)
    assert removed.contents == (ContentChange("contents", b"x\n", None),)
    assert FieldChange("mode", None, 384) in added.fields
    assert one(config(), config({"path": "/a"})).change == "added", "also where it is empty"


def test_an_entry_that_stands_twice_is_compared_with_its_like() -> None:
    found = one(config(entry("/a", b"1"), entry("/a", b"2")), config(entry("/a", b"1"), entry("/a", b"3")))
    assert found.place == "/a (entry 2)"


def test_appended_content_is_decoded_too_and_a_source_that_is_fetched_is_a_field() -> None:
    old = config({"path": "/a", "append": [{"source": "data:,a"}]})
    new = config({"path": "/a", "append": [{"source": "data:,a"}, {"source": "data:,b"}]})
    assert one(old, new).contents == (ContentChange("append[1]", None, b"b"),)
    old, new = (config({"path": "/a", "contents": {"source": f"https://example.com/{name}"}}) for name in "xy")
    (field,) = one(old, new).fields
    assert (field.name, field.old, field.is_secret) == ("contents", {"source": "https://example.com/x"}, False)


def test_units_and_drop_ins_are_compared() -> None:
    changed = UNIT | {"enabled": False, "dropins": [{"name": "x.conf", "contents": "[Unit]\n"}], "contents": "[Unit]\n"}
    found = one(config(systemd={"units": [UNIT]}), config(systemd={"units": [changed]}))
    assert (found.kind, found.place) == ("unit", "a.service")
    assert found.fields == (FieldChange("enabled", True, False),)
    assert {content.name for content in found.contents} == {"contents", "x.conf"}


def test_all_else_is_told_by_its_json_path() -> None:
    old = config(passwd={"users": [{"name": "core", "sshAuthorizedKeys": ["a", "b"]}]}, version="3.1.0")
    new = copy.deepcopy(old)
    new["passwd"]["users"][0]["sshAuthorizedKeys"] = ["a", "c", "d"]
    new["ignition"]["version"] = "3.2.0"
    new["storage"]["links"] = [{"path": "/l"}]
    assert {(each.place, each.change) for each in differences(old, new)} == {
        ("ignition.version", "changed"),
        ("storage.links", "added"),
        ("passwd.users[0].sshAuthorizedKeys[1]", "changed"),
        ("passwd.users[0].sshAuthorizedKeys[2]", "added"),
    }


def test_entries_that_are_no_objects_are_not_lost() -> None:
    assert differences(config(), config(3)) != []  # type: ignore[arg-type]


def test_secrets_are_marked_in_either_direction() -> None:
    key = b"-----BEGIN PRIVATE KEY-----\n"
    for old, new in ((key, b"x"), (b"x", key)):
        (content,) = one(config(entry("/a", old)), config(entry("/a", new))).contents
        assert content.is_secret
    users = [config(passwd={"users": [{"passwordHash": each}]}) for each in "ab"]
    assert one(*users).fields[0].is_secret


def test_lines_show_their_ends_and_what_is_no_text_has_none() -> None:
    lines = ContentChange("contents", b"a\r\nb\n", b"a\nb").lines()
    assert lines is not None
    assert lines[3:] == ["-a^M", "-b", "+a", "+b (no newline at end of file)"]
    for content in (b"\xff", b"\0", b"\x1b[2J", b"x\n" * 30_000, b"x" * 2_000_000):
        assert ContentChange("contents", b"x\n", content).lines() is None


def test_a_secret_is_known_by_its_name_or_its_content() -> None:
    for path, content in (
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
    ):
        assert is_secret_file(path, content)
        assert is_secret_file(path, None, content)


def test_an_ordinary_file_is_shown() -> None:
    for path, content in (
        ("/usr/local/bin/bootkube.sh", b"oc get secrets\necho kind: $KIND\n"),
        ("/opt/openshift/manifests/cvo-overrides.yaml", b"kind: ClusterVersion\n"),
        ("/opt/openshift/tls/root-ca.crt", b"-----BEGIN CERTIFICATE-----\n"),
        ("/a", b"kind: SecretStore\n"),
        ("/a", None),
    ):
        assert not is_secret_file(path, content)


def test_a_field_is_secret_by_its_name_or_its_value_and_an_ordinary_one_is_shown() -> None:
    secrets: list[tuple[str, Any]] = [
        ("passwd.users[0].passwordHash", "$6$x"),
        ("passwd.users[0]", {"name": "core", "passwordHash": "$6$x"}),
        ("ignition.config.replace.source", "https://example.com/b.ign?sig=abc"),
        ("ignition.config.merge", [{"source": "data:;base64,YQ=="}]),
        ("ignition.config.replace.httpHeaders[0].value", "Bearer x"),
        ("x", ["-----BEGIN PRIVATE KEY-----"]),
        ("x", "\ud800 PRIVATE KEY-----"),
    ]
    assert [secret for secret in secrets if not is_secret_field(*secret)] == []
    for value in (None, 3, True, "ssh-rsa AAAA", "https://example.com/b.ign", {"a": ["b"]}):
        assert not is_secret_field("passwd.users[0].sshAuthorizedKeys[0]", value)
