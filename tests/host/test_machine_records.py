"""What a program on a node came to, in the words that stages show."""

from umbilical.host.machine_records import Done


def test_the_last_complaint_stands_for_a_programs_failure() -> None:
    assert Done(1, b"so far so good\n", b"first\nlast\n").complaint == "last"


def test_a_program_without_complaints_is_judged_by_what_it_printed() -> None:
    assert Done(1, b"half\nway\n", b"").complaint == "way"


def test_a_silent_program_is_named_by_its_exit_code() -> None:
    assert Done(3, b"", b"\n").complaint == "it exited with 3 and said nothing"


def test_text_of_any_bytes_can_be_shown_and_output_stays_out_of_logs() -> None:
    done = Done(0, b"\xff secret", b"")
    assert done.text == "\ufffd secret"
    assert "secret" not in repr(done)
