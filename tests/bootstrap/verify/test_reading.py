"""YAML, command lines and shell scripts of unknown origin: read strictly, as Kubernetes and bash read them."""

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.bootkube_script import RELEASES, bootkube_script

from umbilical.bootstrap.verify.documents import (
    MAX_SHOWN,
    PodSpec,
    dig,
    is_placeholder,
    is_within,
    mappings,
    parse_flags,
    parse_yaml,
    seconds,
    shown,
    unexpected_keys,
)
from umbilical.bootstrap.verify.shell_script import MAX_FLOW, Script, ShellCommand
from umbilical.bootstrap.verify.shell_tokens import MAX_DEPTH, ShellToken, tokens_of


def test_a_document_is_its_value_and_what_kubernetes_would_not_read_is_a_fault_with_words() -> None:
    assert parse_yaml("a: [1, true, x]").value == {"a": [1, True, "x"]}
    for text in (
        *("a: 1\na: 2", "{", "a: b: c", "--- 1\n--- 2", '!!int ""', "!!bool x", "!!python/none x", "0000-99-99"),
        "[" * 5000,
    ):
        document = parse_yaml(text)
        assert document.value is None
        assert document.fault
    assert parse_yaml("x:\n  a: 1\n  a: 2\n").fault == "line 2: the key 'a' occurs twice"


@given(st.text())
def test_any_text_gives_a_document(text: str) -> None:
    document = parse_yaml(text)
    assert document.value is None or document.fault is None


def test_digging_ends_where_something_else_is() -> None:
    value = {"a": [{"b": 1}]}
    assert dig(value, "a", 0, "b") == 1
    assert [dig(value, *keys) for keys in (("x",), ("a", 1), ("a", "b"), ("a", 0, "b", "c"), (0,))] == [None] * 5


def test_only_mappings_of_a_list_are_taken_and_unexpected_keys_named() -> None:
    assert mappings([{"a": 1}, 2, "x"]) == [{"a": 1}]
    assert mappings({"a": 1}) == mappings(None) == []
    assert unexpected_keys({"a": 1, "b": 2, 3: 4}, ("a",)) == ["'b'", "3"]


def test_a_tree_is_never_shown_whole_and_aliases_that_multiply_stay_small() -> None:
    assert shown({"a": 1}) == "a mapping"
    assert shown([1]) == "a list"
    assert shown("a\nb") == "'a\\nb'"
    assert len(shown("x" * 9999)) < MAX_SHOWN + 5
    assert (shown(None), shown(True), shown(7)) == ("not set", "True", "7")
    levels = "".join(f"l{number}: &l{number} [{', '.join([f'*l{number - 1}'] * 9)}]\n" for number in range(1, 40))
    document = parse_yaml("l0: &l0 [x]\n" + levels)
    assert shown(document.value) == "a mapping"


def test_durations_are_gos() -> None:
    assert [seconds(text) for text in ("5s", "1m30s", "500ms", "1.5h")] == [5.0, 90.0, 0.5, 5400.0]
    assert [seconds(text) for text in ("", "5", "s", "5s x")] == [None] * 4


def test_placeholders_are_whole_words() -> None:
    assert is_placeholder("${A_B}")
    assert [is_placeholder(text) for text in ("${A}x", "$A", "${}", "${1}", None, 7)] == [False] * 6


def test_a_path_is_within_its_directory_and_not_within_a_neighbour() -> None:
    assert [is_within(*pair) for pair in (("/a/b", "/a"), ("/a", "/a"), ("/a/b", "/a/"))] == [True] * 3
    assert not is_within("/ab", "/a")


def test_flags_are_read_from_command_and_arguments_and_what_is_none_is_a_fault() -> None:
    flags = parse_flags({"command": ["/usr/bin/x", "--a=1"], "args": ["--b", "2", "--c=d=e"]})
    assert flags.program == "/usr/bin/x"
    assert flags.values == {"--a": "1", "--b": "2", "--c": "d=e"}
    assert flags.faults == []
    flags = parse_flags({"args": ["x", "--a=1", "--a=2", "-b", "word"]})
    assert flags.faults == ["--a occurs twice", "'-b' is not a flag", "'word' is not a flag"]
    assert parse_flags({"args": ["x", 7]}).faults
    assert parse_flags({"args": "x"}).program == ""


def test_only_plain_digits_are_an_integer() -> None:
    for text, expected in (("8091", 8091), ("", None), ("-1", None), ("٣", None), ("9" * 20, None)):
        assert parse_flags({"args": ["x", f"--port={text}"]}).integer("--port") == expected


POD = PodSpec(
    {
        "containers": [
            {
                "volumeMounts": [
                    {"name": "v", "mountPath": "/data"},
                    {"name": "w", "mountPath": "/data/inner", "readOnly": True},
                    {"name": "s", "mountPath": "/secret"},
                    {"name": "gone", "mountPath": "relative"},
                ]
            }
        ],
        "volumes": [
            {"name": "v", "hostPath": {"path": "/host", "type": "Directory"}},
            {"name": "w", "hostPath": {"path": "/other"}},
            {"name": "s", "secret": {"secretName": "certs"}},
        ],
    }
)


def test_the_longest_mount_holds_a_path_and_a_secret_has_no_place_on_the_host() -> None:
    outer, inner, secret = (POD.mount_of(path) for path in ("/data/x", "/data/inner/x", "/secret/a"))
    assert outer is not None
    assert inner is not None
    assert secret is not None
    assert (outer.on_host("/data/x/y"), outer.is_read_only, outer.host_type) == ("/host/x/y", False, "Directory")
    assert (inner.on_host("/data/inner/x"), inner.is_read_only) == ("/other/x", True)
    assert (secret.secret_name, secret.on_host("/secret/a")) == ("certs", None)
    assert POD.mount_of("/elsewhere") is None


@pytest.mark.parametrize("spec", [None, [], {}, {"containers": 7}, {"containers": [7]}, {"containers": [{"args": 1}]}])
def test_a_pod_of_nothing_has_nothing(spec: object) -> None:
    pod = PodSpec(spec)
    assert (pod.flags.values, pod.mounts, pod.mount_of("/x")) == ({}, [], None)


def words(script: str) -> list[str]:
    return [token.text for token in tokens_of(script) if token.is_word]


def test_words_are_cut_as_bash_cuts_them() -> None:
    for script, expected in (
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
    ):
        assert words(script) == expected


def test_operators_stand_between_words() -> None:
    for script, expected in (
        ("a&&b||c|d;e&", ["a", "&&", "b", "||", "c", "|", "d", ";", "e", "&"]),
        ("a 2>/dev/null >b", ["a", "2>", "/dev/null", ">", "b"]),
        ("(a)", ["(", "a", ")"]),
        ("a &>b", ["a", "&>", "b"]),
        ("a <<<b", ["a", "<<<", "b"]),
        ("a\nb", ["a", "\n", "b"]),
    ):
        assert [token.text for token in tokens_of(script)] == expected


def test_a_here_document_is_no_command_may_be_indented_by_tabs_and_followed_by_another() -> None:
    tokens = tokens_of("cat >x <<EOF\nnot a command\nEOF\nnext\n")
    assert [token.text for token in tokens] == ["cat", ">", "x", "<<", "EOF", "\n", "next", "\n"]
    assert tokens[4].body == "not a command\n"
    assert tokens_of("cat <<-'E'\n\tone\n\tE\nnext")[2].body == "one\n"
    assert words("cat <<-'E'\n\tone\n\tE\nnext") == ["cat", "E", "next"]
    bodies = [token.body for token in tokens_of("a <<X <<Y\n1\nX\n2\nY\n") if token.body is not None]
    assert bodies == ["1\n", "2\n"]


def test_lines_are_counted_through_quotes_and_continuations() -> None:
    tokens = [token for token in tokens_of("a \\\nb\n'c\nd'\ne") if token.is_word]
    assert [token.line for token in tokens] == [1, 2, 3, 5]


def test_commands_inside_a_word_or_an_array_are_kept_as_tokens() -> None:
    for script, called in (('"x$(a b)y"', ["a", "b"]), ('X=(a "$(b)")', ["b"])):
        (word,) = tokens_of(script)
        assert [[token.text for token in inner] for inner in word.substitutions] == [called]


def test_only_an_unquoted_word_can_be_a_keyword() -> None:
    assert [token.is_plain for token in tokens_of("if \"if\" 'if' i\\f")] == [True, False, False, False]


def test_what_is_not_closed_or_nests_without_end_ends_with_the_script() -> None:
    assert tokens_of("$(" * 50_000)
    assert tokens_of("a <(" * (MAX_DEPTH * 3))
    for script in ("'a", '"a', "`a", "${a", "$(a", "$((a", "<<E\nx", "a\\", "X=(a", "$", "<("):
        assert isinstance(tokens_of(script), list)


_PIECES = st.sampled_from(
    [
        "a", "if", " ", "\n", "'", '"', "`", "$", "$(", ")", "(", "{", "}", "${", "\\", "#", "<<E\n", "E\n", ";", "&&",
        "|", "=", "\r", "\x85", "\u2028",
    ]
)  # fmt: skip


@given(st.lists(_PIECES, max_size=60).map("".join) | st.text())
def test_any_text_gives_tokens(script: str) -> None:
    assert all(isinstance(token, ShellToken) for token in tokens_of(script))


@given(st.lists(st.text(min_size=1).filter(lambda word: "\0" not in word), max_size=8))
def test_what_shlex_quotes_comes_back(written: list[str]) -> None:
    assert words(shlex.join(written)) == written


def only(script: str, program: str) -> ShellCommand:
    (command,) = Script(script).calls(program)
    return command


def kinds(command: ShellCommand) -> list[str]:
    return [block.kind for block in command.blocks]


def test_a_continued_command_is_one_command() -> None:
    command = only("run \\\n\t--name x \\\n\n\tother\n", "run")
    assert command.words == ("run", "--name", "x")
    assert command.line == 1


def test_what_only_looks_like_a_call_is_none() -> None:
    for script in (
        *("# call", "echo call", "'call it'", "cat <<E\ncall\nE\n", "x=call", "echo 'a\ncall\n'"),
        "for call in a; do b; done",
    ):
        assert Script(script).calls("call") == []


def test_a_call_under_a_condition_is_told_from_one_on_a_line_of_its_own() -> None:
    for script in (
        *("false && call", "false || call", "a | call", "call | a", "call &", "call || true", "! true && call"),
        *("if false; then call; fi", "if call; then :; fi", "while call; do :; done", "case a in b) call ;; esac"),
        *("f() { call; }", "function f\n{\ncall\n}", "( call )", "{ call; }", "x=$(call)"),
    ):
        assert not only(script, "call").is_unconditional
    for script in ("call", "a; call; b", "  call  # why", "call >/dev/null", "if a\nthen b\nfi\ncall\nc"):
        assert only(script, "call").is_unconditional


def test_a_then_block_knows_its_condition() -> None:
    command = only("if [ ! -f x.done ]\nthen\n  call\nfi", "call")
    (block,) = command.blocks
    assert block.kind == "then"
    assert [condition.words for condition in block.conditions] == [("[", "!", "-f", "x.done", "]")]


def test_else_and_elif_are_other_blocks_than_then() -> None:
    script = "if a; then one; elif b; then two; else three; fi"
    assert [kinds(only(script, name)) for name in ("one", "two", "three")] == [["then"], ["then"], ["else"]]
    (block,) = only(script, "two").blocks
    assert [condition.words for condition in block.conditions] == [("b",)]


def test_blocks_nest_and_end() -> None:
    script = "if a; then while b; do call; done; fi; after"
    assert kinds(only(script, "call")) == ["then", "loop"]
    assert kinds(only(script, "after")) == []


def test_case_patterns_are_no_commands() -> None:
    script = Script('case "$x" in\n  a|b) one ;;\n  *) two\n  ;;\nesac\nthree')
    assert [command.words for command in script.commands] == [("one",), ("two",), ("three",)]


def test_assignments_and_redirections_are_told_from_words() -> None:
    command = only("A=1 B=2 call C=3 >out 2>&1 <<<in", "call")
    assert (command.assignments, command.words) == (("A=1", "B=2"), ("call", "C=3"))
    assert command.redirects == ((">", "out"), ("2>&", "1"), ("<<<", "in"))
    assert only("call <<E\ntext\nE\n", "call").redirects == (("<<", "text\n"),)


def test_arguments_are_found_in_both_spellings() -> None:
    command = only("call --a=1 --b 2 --c --d=", "call")
    assert [command.argument(name) for name in ("--a", "--b", "--c", "--d", "--e")] == ["1", "2", "", "", None]


def test_functions_are_known_even_when_empty_or_spelled_otherwise() -> None:
    script = Script("f() {\n :\n}\nfunction g { a; }\nh ()\n{\n}\ni() (\n b\n)\n")
    bodies = {name: [command.words for command in body] for name, body in script.functions.items()}
    assert bodies == {"f": [(":",)], "g": [("a",)], "h": [], "i": [("b",)]}


def test_what_a_function_reaches_includes_what_its_functions_do() -> None:
    script = Script("a() { b; }\nb() { c; a; }\nc() { end; }\nd() { other; }\n")
    assert {command.program for command in script.reached_from("a")} == {"a", "b", "c", "end"}


def test_the_flow_shows_a_functions_body_where_it_is_called_and_the_place_of_a_command() -> None:
    script = Script("f() { inside; }\nbefore\nif f\nthen after\nfi\n")
    assert [command.program for command in script.flow] == ["before", "f", "inside", "after"]
    script = Script("f() { a; }\nb\n")
    assert script.place_of(only("f() { a; }\nb\n", "b")) == 0
    assert script.place_of(only("f() { a; }\nb\n", "a")) == len(script.flow)


def test_functions_that_call_each_other_or_multiply_do_not_make_an_endless_flow() -> None:
    assert len(Script("f() { g; }\ng() { f; f; }\nf\n").flow) < 20
    many = "\n".join("{0};" * 200 for _ in range(5))
    script = "".join(f"{name}() {{\n{many.format(called)}\n}}\n" for name, called in ("fg", "gh", "hx"))
    assert len(Script(f"{script}f\nlast\n").flow) == MAX_FLOW


@pytest.mark.parametrize("release", RELEASES)
def test_a_whole_bootkube_script_closes_every_block(release: str) -> None:
    script = Script(bootkube_script(release))
    assert script.main[-1].words == ("touch", "/opt/openshift/.bootkube.done")
    assert script.main[-1].is_unconditional
    assert set(script.functions) == {"bootkube_podman_run"}


_KEYWORDS = st.sampled_from(
    [
        "a", "if ", "then ", "fi\n", "else ", "do ", "done\n", "case x in ", "esac\n", "f() ", "{ ", "}\n", "( ", ") ",
        "; ", "\n", "&& ", "| ", "[[ ", "]] ", "! ", ";; ", "function ", "<<E\n", "E\n", "'", '"', "$(", "for ",
        "time ",
    ]
)  # fmt: skip


@given(st.lists(_KEYWORDS, max_size=50).map("".join) | st.text())
def test_any_text_gives_a_script(text: str) -> None:
    script = Script(text)
    assert len(script.main) <= len(script.commands)
    assert set(script.functions) >= {command.function for command in script.commands} - {None}
    assert len(script.flow) >= len(script.main)
