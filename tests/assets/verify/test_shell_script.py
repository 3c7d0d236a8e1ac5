"""Which commands run, in which order, in which blocks; and what only looks like one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.bootkube_script import RELEASES, bootkube_script

from umbilical.assets.verify.shell_script import MAX_FLOW, Command, Script


def only(script: str, program: str) -> Command:
    (command,) = Script(script).calls(program)
    return command


def kinds(command: Command) -> list[str]:
    return [block.kind for block in command.blocks]


def test_a_continued_command_is_one_command() -> None:
    command = only("run \\\n\t--name x \\\n\n\tother\n", "run")
    assert command.words == ("run", "--name", "x")
    assert command.line == 1


@pytest.mark.parametrize(
    "script",
    [
        "# call",
        "echo call",
        "'call it'",
        "cat <<E\ncall\nE\n",
        "x=call",
        "echo 'a\ncall\n'",
        "for call in a; do b; done",
    ],
)
def test_what_only_looks_like_a_call_is_none(script: str) -> None:
    assert Script(script).calls("call") == []


@pytest.mark.parametrize(
    "script",
    [
        "false && call",
        "false || call",
        "a | call",
        "call | a",
        "call &",
        "call || true",
        "if false; then call; fi",
        "if call; then :; fi",
        "while call; do :; done",
        "f() { call; }",
        "function f\n{\ncall\n}",
        "( call )",
        "{ call; }",
        "x=$(call)",
        "case a in b) call ;; esac",
        "! true && call",
    ],
)
def test_a_call_under_a_condition_is_told_from_one_without(script: str) -> None:
    assert not only(script, "call").is_unconditional


@pytest.mark.parametrize(
    "script", ["call", "a; call; b", "  call  # why", "call >/dev/null", "if a\nthen b\nfi\ncall\nc"]
)
def test_a_call_on_a_line_of_its_own_is_unconditional(script: str) -> None:
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


def test_negation_is_noticed() -> None:
    assert only("if ! call; then :; fi", "call").is_negated
    assert not only("! a\ncall", "call").is_negated


def test_assignments_and_redirections_are_told_from_words() -> None:
    command = only("A=1 B=2 call C=3 >out 2>&1 <<<in", "call")
    assert command.assignments == ("A=1", "B=2")
    assert command.words == ("call", "C=3")
    assert command.redirects == ((">", "out"), ("2>&", "1"), ("<<<", "in"))


def test_a_here_document_belongs_to_its_command() -> None:
    assert only("call <<E\ntext\nE\n", "call").redirects == (("<<", "text\n"),)


def test_arguments_are_found_in_both_spellings() -> None:
    command = only("call --a=1 --b 2 --c --d=", "call")
    assert [command.argument(name) for name in ("--a", "--b", "--c", "--d", "--e")] == ["1", "2", "", "", None]


def test_functions_are_known_even_when_empty_or_spelled_otherwise() -> None:
    script = Script("f() {\n :\n}\nfunction g { a; }\nh ()\n{\n}\ni() (\n b\n)\n")
    assert {name: [command.words for command in body] for name, body in script.functions.items()} == {
        "f": [(":",)],
        "g": [("a",)],
        "h": [],
        "i": [("b",)],
    }


def test_what_a_function_reaches_includes_what_its_functions_do() -> None:
    script = Script("a() { b; }\nb() { c; a; }\nc() { end; }\nd() { other; }\n")
    assert {command.program for command in script.reached_from("a")} == {"a", "b", "c", "end"}


def test_the_flow_shows_a_functions_body_where_it_is_called() -> None:
    script = Script("f() { inside; }\nbefore\nif f\nthen after\nfi\n")
    assert [command.program for command in script.flow] == ["before", "f", "inside", "after"]


def test_functions_that_call_each_other_do_not_make_an_endless_flow() -> None:
    assert len(Script("f() { g; }\ng() { f; f; }\nf\n").flow) < 20


def test_functions_that_multiply_do_not_make_an_endless_flow() -> None:
    many = "\n".join("{0};" * 200 for _ in range(5))
    script = "".join(f"{name}() {{\n{many.format(called)}\n}}\n" for name, called in ("fg", "gh", "hx"))
    assert len(Script(f"{script}f\nlast\n").flow) == MAX_FLOW


def test_a_command_has_its_place_in_the_flow() -> None:
    script = Script("f() { a; }\nb\n")
    assert script.place_of(only("f() { a; }\nb\n", "b")) == 0
    assert script.place_of(only("f() { a; }\nb\n", "a")) == len(script.flow)


@pytest.mark.parametrize("release", RELEASES)
def test_a_whole_bootkube_script_closes_every_block(release: str) -> None:
    script = Script(bootkube_script(release))
    assert script.main[-1].words == ("touch", "/opt/openshift/.bootkube.done")
    assert script.main[-1].is_unconditional
    assert set(script.functions) == {"bootkube_podman_run"}


_PIECES = st.sampled_from(
    [
        "a", "if ", "then ", "fi\n", "else ", "do ", "done\n", "case x in ", "esac\n", "f() ", "{ ", "}\n", "( ", ") ",
        "; ", "\n", "&& ", "| ", "[[ ", "]] ", "! ", ";; ", "function ", "<<E\n", "E\n", "'", '"', "$(", "for ",
        "time ",
    ]
)  # fmt: skip


@given(st.lists(_PIECES, max_size=50).map("".join) | st.text())
def test_any_text_gives_a_script(text: str) -> None:
    script = Script(text)
    assert len(script.main) <= len(script.commands)
    assert set(script.functions) >= {command.function for command in script.commands} - {None}
    assert len(script.flow) >= len(script.main)
