"""Which archive of Debian tools use, and what they say when one or a program is missing."""

from pathlib import Path

import pytest

import debian

SOURCES = """\
Types: deb
# http://snapshot.example.org/archive/debian/20250520T000000Z
URIs: http://mirror.example.org/debian
Suites: bookworm bookworm-updates
"""


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("sources.list.d/debian.sources", SOURCES, "http://mirror.example.org/debian"),
        ("sources.list", "deb [signed-by=/k] https://m.example.org/debian/ sid main", "https://m.example.org/debian/"),
        ("sources.list.d/other.list", "deb https://m.example.org/apt stable main", debian.MIRROR),
        ("sources.list.d/old.list.disabled", "deb https://m.example.org/debian sid main", debian.MIRROR),
    ],
)
def test_the_archive_is_the_one_that_apt_uses_here(tmp_path: Path, name: str, text: str, expected: str) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(text)
    assert debian.archive(tmp_path) == expected


def test_updates_and_security_updates_come_from_the_same_places(tmp_path: Path) -> None:
    (tmp_path / "sources.list").write_text(
        "deb http://m.example.org/debian sid main\ndeb http://s.example.org/debian-security sid main\n"
    )
    assert debian.archives_with_updates(tmp_path) == [
        "deb http://m.example.org/debian bookworm main",
        "deb http://m.example.org/debian bookworm-updates main",
        "deb http://s.example.org/debian-security bookworm-security main",
    ]
    assert debian.archives_with_updates(tmp_path / "none")[2] == f"deb {debian.SECURITY} bookworm-security main"


def test_a_command_that_fails_or_takes_too_long_is_named_with_its_last_line() -> None:
    for script, seconds, why in (
        ("echo one; echo two >&2; exit 3", 60.0, "  why: two"),
        ("exit 3", 60.0, "  why: sh exited with 3"),
        ("sleep 60", 0.1, "  why: timed out after 0 s"),
    ):
        with pytest.raises(debian.DebianError) as caught:
            debian.run_quietly(["sh", "-c", script], seconds, "UMB918", "nothing was made")
        lines = str(caught.value).splitlines()
        assert lines == ["UMB918 nothing was made", why, f"  next: run it by hand: sh -c {script}"]
