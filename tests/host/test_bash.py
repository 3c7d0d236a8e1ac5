"""What the real bash says of scripts."""

from pathlib import Path

from umbilical.host.bash import syntax_complaint


def test_a_script_that_bash_can_read_has_no_complaint() -> None:
    assert syntax_complaint(b"if true\nthen\n    echo yes\nfi\n") is None


def test_a_complaint_is_one_line_with_the_place() -> None:
    complaint = syntax_complaint(b"if true\nthen\n")

    assert complaint is not None
    assert "line 3" in complaint
    assert "\n" not in complaint


def test_nothing_of_the_script_is_run(tmp_path: Path) -> None:
    trace = tmp_path / "trace"

    assert syntax_complaint(f"touch {trace}\n".encode()) is None
    assert not trace.exists()
