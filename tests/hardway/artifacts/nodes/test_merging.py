"""Merging: no path, unit or user appears twice, and all other entries of the base are kept."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from umbilical.hardway.artifacts.nodes.merging import GZIP_BYTES, NodeParts, SystemdUnit, format_config, merge
from umbilical.ignition.config import config_of, faults, read_config
from umbilical.ignition.data_url import format_data_url


def base(*paths: str, **fields: Any) -> dict[str, Any]:
    files = [{"path": path, "mode": 420, "contents": {"source": format_data_url(b"base")}} for path in paths]
    return {"ignition": {"version": "3.5.0"}, "storage": {"files": files}, **fields}


def parts(**contents: bytes) -> NodeParts:
    made = NodeParts()
    for name, content in contents.items():
        made.files.add(f"/{name}", content, 0o600)
    return made


def test_a_path_of_the_base_is_replaced_in_its_place() -> None:
    config = config_of(merge(base("/a", "/b", "/c"), parts(b=b"ours")))
    assert [file.path for file in config.files] == ["/a", "/b", "/c"]
    assert config.files[1].content() == b"ours"
    assert config.files[1].mode == 0o600


def test_a_new_path_is_appended_and_the_version_of_the_base_stays() -> None:
    config = config_of(merge(base("/a"), parts(z=b"ours")))
    assert ([file.path for file in config.files], config.version) == (["/a", "/z"], "3.5.0")


def test_the_base_itself_is_left_alone() -> None:
    original = base("/a")
    merge(original, parts(a=b"ours"))
    assert original == base("/a")


def test_null_is_absent() -> None:
    original = {
        "ignition": {"version": "3.4.0"},
        "storage": {"links": None, "files": None},
        "passwd": None,
        "systemd": None,
    }
    made = NodeParts(units=[SystemdUnit("a.service", "[Service]\n")], ssh_keys=("one",), directories={"/d": 0o755})
    made.files.add("/a", b"ours", 0o600)
    merged = merge(original, made)
    assert faults(config_of(merged)) == []
    assert [entry["path"] for entry in merged["storage"]["files"]] == ["/a"]
    assert merged["passwd"]["users"] == [{"name": "core", "sshAuthorizedKeys": ["one"]}]


def test_a_path_that_stands_twice_in_the_base_is_written_once() -> None:
    merged = config_of(merge(base("/a", "/a"), parts(a=b"ours")))
    assert [file.content() for file in merged.files] == [b"ours"]


def test_what_must_be_last_is_behind_the_files_of_the_base_and_of_the_node() -> None:
    made = parts(b=b"ours")
    made.last.add("/a", b"last", 0o644)
    assert [file.path for file in config_of(merge(base("/a", "/c"), made)).files] == ["/c", "/b", "/a"]


def test_a_unit_keeps_the_drop_ins_that_the_base_has_for_it() -> None:
    drop_in = {"name": "10-env.conf", "contents": "[Service]\nEnvironment=A=b\n"}
    units = [
        {"name": "kubelet.service", "enabled": False, "contents": "old", "dropins": [drop_in]},
        {"name": "x.service"},
    ]
    made = NodeParts(units=[SystemdUnit("kubelet.service", "new")])
    config = config_of(merge(base(systemd={"units": units}), made))
    assert [unit.name for unit in config.units] == ["kubelet.service", "x.service"]
    kubelet = config.units[0]
    assert (kubelet.contents, kubelet.enabled, list(kubelet.dropins)) == ("new", True, ["10-env.conf"])


def test_a_file_at_the_place_of_a_unit_makes_way_for_it() -> None:
    made = NodeParts(units=[SystemdUnit("a.service", "[Service]\nExecStart=/bin/true\n")])
    merged = config_of(merge(base("/etc/systemd/system/a.service"), made))
    assert (merged.files, faults(merged)) == ((), [])


def test_keys_of_a_user_are_joined_and_other_users_stay() -> None:
    users = [{"name": "other"}, {"name": "core", "groups": ["sudo"], "sshAuthorizedKeys": ["one"]}]
    merged = merge(base(passwd={"users": users}), NodeParts(ssh_keys=("one", "two")))
    assert merged["passwd"]["users"] == [
        {"name": "other"},
        {"name": "core", "groups": ["sudo"], "sshAuthorizedKeys": ["one", "two"]},
    ]


def test_large_files_are_compressed_and_come_back_whole() -> None:
    large = b"0123456789abcdef" * (GZIP_BYTES // 16)
    config = read_config(format_config(merge(base(), parts(large=large, small=b"x"))))
    files = {file.path: file for file in config.files}
    assert (files["/large"].compression, files["/small"].compression) == ("gzip", "")
    assert files["/large"].content() == large
    assert len(files["/large"].source or "") < len(large) // 10


_PATHS = st.sampled_from(["/a", "/b", "/c", "/d", "/e"])
_KINDS = st.sampled_from(["files", "directories", "links"])


@given(
    st.lists(st.tuples(_KINDS, _PATHS), max_size=8),
    st.sets(_PATHS, max_size=4),
    st.sets(_PATHS, max_size=3),
    st.sets(_PATHS, max_size=2),
)
def test_no_path_stands_twice_that_the_parts_have(
    existing: list[tuple[str, str]], files: set[str], directories: set[str], last: set[str]
) -> None:
    storage: dict[str, Any] = {}
    for kind, path in {path: (kind, path) for kind, path in existing}.values():
        storage.setdefault(kind, []).append({"path": path, **({"target": "/t"} if kind == "links" else {})})
    made = NodeParts(directories=dict.fromkeys(directories - files - last, 0o755))
    for path in sorted(files - last):
        made.files.add(path, b"ours", 0o600)
    for path in sorted(last):
        made.last.add(path, b"last", 0o644)
    config = config_of(merge({"ignition": {"version": "3.4.0"}, "storage": storage}, made))
    assert faults(config) == []
    assert {file.path for file in config.files if file.source is not None} == files | last
