"""`umbilical bootstrap diff`, run as a user runs it."""

import json
from pathlib import Path
from typing import Any

import pytest

from umbilical.cli import main
from umbilical.ignition.data_url import format_data_url

KEY = "-----BEGIN PRIVATE KEY-----\nMIIsecretsecret\n"


def config(script: str = "echo one\n", mode: int = 365, key: str = KEY, **sections: Any) -> dict[str, Any]:
    files = [
        {"path": "/usr/local/bin/bootkube.sh", "mode": mode, "contents": {"source": format_data_url(script.encode())}},
        {"path": "/opt/openshift/tls/ca.pem", "contents": {"source": format_data_url(key.encode())}},
    ]
    return {"ignition": {"version": "3.2.0"}, "storage": {"files": files}} | sections


class Ran:
    """A run of the command and what it printed."""

    def __init__(self, status: int, out: str, err: str) -> None:
        self.status, self.out, self.err = status, out, err


@pytest.fixture
def diff(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Any:
    def run(old: Any, new: Any, *options: str) -> Ran:
        paths = []
        for name, value in (("old.ign", old), ("new.ign", new)):
            paths.append(tmp_path / name)
            paths[-1].write_bytes(value if isinstance(value, bytes) else json.dumps(value).encode())
        status = main.run(["bootstrap", "diff", *map(str, paths), *options])
        captured = capfd.readouterr()
        return Ran(status, captured.out, captured.err)

    return run


def test_the_same_config_gives_zero_and_no_data(diff: Any) -> None:
    ran = diff(config(), config())
    assert (ran.status, ran.out, ran.err) == (0, "", "the same, byte for byte\n")


def test_the_same_config_in_another_formatting_gives_zero_and_says_so(diff: Any) -> None:
    ran = diff(config(), json.dumps(config(), indent=2).encode())
    assert (ran.status, ran.out) == (0, "")
    assert "only the formatting" in ran.err


def test_a_changed_script_is_shown_line_by_line(diff: Any) -> None:
    ran = diff(config(), config("set -e\necho one\n", mode=420))
    assert ran.status == 1
    title, mode, contents, *lines = ran.out.splitlines()
    assert title == "~ file /usr/local/bin/bootkube.sh"
    assert mode == "    mode: 0555 -> 0644"
    assert contents.startswith("    contents: 9 bytes sha256:")
    assert contents.endswith(", lines +1 -0")
    assert lines == ["    @@ -1 +1,2 @@", "    +set -e", "     echo one"]
    assert ran.err == "0 added, 0 removed, 1 changed\n"


def test_stat_counts_and_shows_no_lines(diff: Any) -> None:
    ran = diff(config(), config("set -e\necho one\n"), "--stat")
    assert ran.status == 1
    assert ran.out.splitlines()[-1].endswith(", lines +1 -0")
    assert "set -e" not in ran.out


@pytest.mark.parametrize("output", ["table", "json"])
def test_a_key_is_not_shown_unless_asked_for(diff: Any, output: str) -> None:
    changed = config(key=KEY.replace("MII", "MIJ"))
    hidden = diff(config(), changed, "-o", output)
    shown = diff(config(), changed, "-o", output, "--show-secrets")
    assert (hidden.status, shown.status) == (1, 1)
    assert "secretsecret" not in hidden.out + hidden.err
    assert "+MIJsecretsecret" in shown.out
    assert "/opt/openshift/tls/ca.pem" in hidden.out


@pytest.mark.parametrize("output", ["table", "json"])
def test_a_password_hash_is_not_shown_unless_asked_for(diff: Any, output: str) -> None:
    old, new = (config(passwd={"users": [{"name": "core", "passwordHash": f"$6${each}"}]}) for each in "ab")
    assert "$6$" not in diff(old, new, "-o", output).out
    assert "$6$b" in diff(old, new, "-o", output, "--show-secrets").out


def test_units_and_other_fields_are_shown(diff: Any) -> None:
    unit = {"name": "a.service", "enabled": True}
    ran = diff(config(), config(systemd={"units": [unit]}, passwd={"users": [{"name": "core"}]}))
    assert ran.out.splitlines() == ["+ unit a.service", "    enabled: true", '+ passwd.users: [{"name": "core"}]']
    assert ran.err == "2 added, 0 removed, 0 changed\n"


def test_a_program_gets_json(diff: Any) -> None:
    ran = diff(config(), config("echo two\n"), "-o", "json")
    answer = json.loads(ran.out)
    (difference,) = answer["differences"]
    assert (answer["kind"], difference["kind"], difference["change"]) == ("BootstrapDiff", "file", "changed")
    (content,) = difference["contents"]
    assert content["lines"][-2:] == ["-echo one", "+echo two"]
    assert (content["old"]["bytes"], len(content["new"]["sha256"]), ran.err) == (9, 64, "")


def test_a_program_gets_an_empty_list_when_nothing_differs(diff: Any) -> None:
    ran = diff(config(), config(), "-o", "json")
    assert (ran.status, json.loads(ran.out)["differences"]) == (0, [])


def test_a_terminal_does_not_obey_what_a_config_says(diff: Any) -> None:
    ran = diff(config("a\n"), config("\x1b[2Jb\n") | {"\x1b[2J": "\x1b[2J\ud800"})
    assert ran.status == 1
    assert "\x1b" not in ran.out
    assert "\\x1b[2J" in ran.out
    assert "not text" in ran.out


def test_a_long_value_is_cut(diff: Any) -> None:
    ran = diff(config(x="a"), config(x="b" * 10_000))
    assert len(ran.out) < 300
    assert ran.out.endswith("...\n")


def test_what_is_no_config_is_an_error_that_names_the_file(diff: Any) -> None:
    ran = diff(config(), b"\xef\xbb\xbf{}")
    assert ran.status == 3
    assert ran.out == ""
    first, why, _ = ran.err.splitlines()
    assert first.startswith("UMB140 ")
    assert "new.ign" in first
    assert "byte order mark" in why


def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for absent in (tmp_path / "absent.ign", tmp_path):
        assert main.run(["bootstrap", "diff", str(absent), str(absent)]) == 3
        assert capfd.readouterr().err.startswith(f"UMB002 cannot read {absent}")
