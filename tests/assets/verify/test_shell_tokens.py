"""Words, operators, comments and here-documents, as bash cuts them."""

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from umbilical.assets.verify.shell_tokens import MAX_DEPTH, Token, tokens_of


def words(script: str) -> list[str]:
    return [token.text for token in tokens_of(script) if token.is_word]


def texts(script: str) -> list[str]:
    return [token.text for token in tokens_of(script)]


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("a b\tc", ["a", "b", "c"]),
        ("a 'b c' \"d e\"", ["a", "b c", "d e"]),
        ("a\\ b", ["a b"]),
        ('"a\\"b" "a\\nb"', ['a"b', "a\\nb"]),
        ("$'a b'", ["a b"]),
        ("a # b c", ["a"]),
        ("a#b", ["a#b"]),
        ("'a # b'", ["a # b"]),
        ("a \\\n  b", ["a", "b"]),
        ('"a\\\nb"', ["ab"]),
        ('--x="${Y}"', ["--x=${Y}"]),
        ("${A:-b c} d", ["${A:-b c}", "d"]),
        ("$((1 + (2))) x", ["$((1 + (2)))", "x"]),
        ("a $(b 'c)' d) e", ["a", "$(b 'c)' d)", "e"]),
        ('"$(a "b c")" d', ['$(a "b c")', "d"]),
        ("a `b c` d", ["a", "`b c`", "d"]),
        ("X=(a b) c", ["X=(a b)", "c"]),
        ("a <(b c)", ["a", "<(b c)"]),
    ],
)
def test_words_are_cut_as_bash_cuts_them(script: str, expected: list[str]) -> None:
    assert words(script) == expected


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("a&&b||c|d;e&", ["a", "&&", "b", "||", "c", "|", "d", ";", "e", "&"]),
        ("a 2>/dev/null >b", ["a", "2>", "/dev/null", ">", "b"]),
        ("(a)", ["(", "a", ")"]),
        ("a &>b", ["a", "&>", "b"]),
        ("a <<<b", ["a", "<<<", "b"]),
        ("a\nb", ["a", "\n", "b"]),
    ],
)
def test_operators_stand_between_words(script: str, expected: list[str]) -> None:
    assert texts(script) == expected


def test_a_here_document_is_no_command() -> None:
    tokens = tokens_of("cat >x <<EOF\nnot a command\nEOF\nnext\n")
    assert [token.text for token in tokens] == ["cat", ">", "x", "<<", "EOF", "\n", "next", "\n"]
    assert tokens[4].body == "not a command\n"


def test_a_here_document_may_be_indented_by_tabs() -> None:
    tokens = tokens_of("cat <<-'E'\n\tone\n\tE\nnext")
    assert tokens[2].body == "one\n"
    assert words("cat <<-'E'\n\tone\n\tE\nnext") == ["cat", "E", "next"]


def test_two_here_documents_follow_each_other() -> None:
    bodies = [token.body for token in tokens_of("a <<X <<Y\n1\nX\n2\nY\n") if token.body is not None]
    assert bodies == ["1\n", "2\n"]


def test_lines_are_counted_through_quotes_and_continuations() -> None:
    tokens = [token for token in tokens_of("a \\\nb\n'c\nd'\ne") if token.is_word]
    assert [token.line for token in tokens] == [1, 2, 3, 5]


def test_commands_inside_a_word_are_kept_as_tokens() -> None:
    (word,) = [token for token in tokens_of('"x$(a b)y"') if token.is_word]
    assert [[token.text for token in inner] for inner in word.substitutions] == [["a", "b"]]


def test_only_an_unquoted_word_can_be_a_keyword() -> None:
    assert [token.is_plain for token in tokens_of("if \"if\" 'if' i\\f")] == [True, False, False, False]


def test_an_array_is_no_command_but_what_it_calls_is() -> None:
    (word,) = tokens_of('X=(a "$(b)")')
    assert [[token.text for token in inner] for inner in word.substitutions] == [["b"]]


def test_nesting_without_end_does_not_exhaust_the_stack() -> None:
    assert tokens_of("$(" * 50_000)
    assert tokens_of("a <(" * (MAX_DEPTH * 3))


@pytest.mark.parametrize("script", ["'a", '"a', "`a", "${a", "$(a", "$((a", "<<E\nx", "a\\", "X=(a", "$", "<("])
def test_what_is_not_closed_ends_with_the_script(script: str) -> None:
    assert isinstance(tokens_of(script), list)


_PIECES = st.sampled_from(
    [
        "a", "if", " ", "\n", "'", '"', "`", "$", "$(", ")", "(", "{", "}", "${", "\\", "#", "<<E\n", "E\n", ";", "&&",
        "|", "=", "\r", "\x85", "\u2028",
    ]
)  # fmt: skip


@given(st.lists(_PIECES, max_size=60).map("".join) | st.text())
def test_any_text_gives_tokens(script: str) -> None:
    assert all(isinstance(token, Token) for token in tokens_of(script))


@given(st.lists(st.text(min_size=1).filter(lambda word: "\0" not in word), max_size=8))
def test_what_shlex_quotes_comes_back(written: list[str]) -> None:
    assert words(shlex.join(written)) == written
