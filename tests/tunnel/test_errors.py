from umbilical.tunnel.errors import StartupError


def test_a_startup_error_says_what_why_and_what_next_under_its_code() -> None:
    error = StartupError("UMB023", "cannot listen on *:8091 for agents", "Address already in use", "see ss -ltnp")
    assert (error.code, error.what, error.why, error.next) == (
        "UMB023",
        "cannot listen on *:8091 for agents",
        "Address already in use",
        "see ss -ltnp",
    )


def test_its_text_is_what_and_why_in_one_line() -> None:
    assert str(StartupError("UMB020", "what failed", "the reason", "the remedy")) == "what failed: the reason"
