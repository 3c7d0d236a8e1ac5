"""Decoded Ignition, file by file."""

import base64
import json
from typing import Any

from umbilical.assets.hardway.diff.content import compare_content
from umbilical.assets.hardway.diff.ignition import compare_ignition
from umbilical.assets.hardway.diff.part import HIDDEN, Change, Part


def config(files: dict[str, tuple[str, int]], *units: dict[str, Any], passwd: dict[str, Any] | None = None) -> bytes:
    entries = [
        {"path": path, "mode": mode, "contents": {"source": f"data:;base64,{base64.b64encode(text.encode()).decode()}"}}
        for path, (text, mode) in files.items()
    ]
    value: dict[str, Any] = {"ignition": {"version": "3.4.0"}, "storage": {"files": entries}}
    return json.dumps({**value, "systemd": {"units": list(units)}, **({"passwd": passwd} if passwd else {})}).encode()


def compared(old: bytes, new: bytes) -> tuple[Part, ...]:
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
    assert pod == Part("Pod x", Change.CHANGED, parts=(Part("spec.a", Change.CHANGED, "1", "2"),))


def test_files_that_come_and_go_are_one_line_each() -> None:
    old, new = config({"/a": ("1", 420)}), config({"/b": ("1", 420)})
    assert compared(old, new) == (Part("file /a", Change.REMOVED), Part("file /b", Change.CREATED))


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
    assert parts == (Part("file /a", Change.CREATED),)


def test_what_is_no_config_is_left_to_others() -> None:
    assert compare_ignition(b"{}", b"nonsense", compare_content) is None
