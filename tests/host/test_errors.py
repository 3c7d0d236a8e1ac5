"""The shape of an error."""

from umbilical.host.errors import HostError


def test_an_error_is_three_lines_with_the_code_first() -> None:
    error = HostError("UMB801", "x exists", "it is in use", "move it")
    assert str(error) == "UMB801 x exists\n  why: it is in use\n  next: move it"
    assert (error.code, error.what, error.why, error.remedy) == ("UMB801", "x exists", "it is in use", "move it")
