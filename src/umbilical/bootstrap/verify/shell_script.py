"""Parses a bash script into commands, each with its enclosing blocks: what runs, when, and on which condition.

`false && call`, and a call in a comment, in a here-document or in an unused function, do not count as calls.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import Final

from umbilical.bootstrap.verify.shell_tokens import ShellToken, tokens_of

# Depth of nested calls. The installer's scripts have two levels; the limit bounds the expansion.
MAX_CALLS: Final = 3
MAX_FLOW: Final = 50_000

_ASSIGNMENT: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\[[^]]*\])?\+?=")
_REDIRECT: Final = re.compile(r"&?[0-9]*[<>]")
_LISTS: Final = ("&&", "||", "|", "|&")
_NO_CONDITION: Final = ("then", "do", "else", "elif")


@dataclass(frozen=True)
class ShellBlock:
    """A construct around a command."""

    kind: str
    """function, if (its condition), then, else, while (its condition), loop, case, group, subshell, substitution."""
    line: int
    name: str = ""
    conditions: tuple["ShellCommand", ...] = ()


@dataclass(frozen=True)
class ShellCommand:
    """A simple command: assignments, words without their quotes, and redirects."""

    line: int
    words: tuple[str, ...]
    assignments: tuple[str, ...] = ()
    redirects: tuple[tuple[str, str], ...] = ()
    """Operator and target; a here-document's target is its body."""
    blocks: tuple[ShellBlock, ...] = ()
    joined_by: str = ""
    """The operator between it and the command before: && || | or none."""
    ended_by: str = "\n"

    @property
    def program(self) -> str:
        return self.words[0] if self.words else ""

    @property
    def function(self) -> str | None:
        return next((block.name for block in self.blocks if block.kind == "function"), None)

    @property
    def is_unconditional(self) -> bool:
        """It always runs, in the script's own shell, and `set -e` applies to it."""
        return not self.blocks and not self.joined_by and self.ended_by in ("\n", ";", "")

    def argument(self, flag: str) -> str | None:
        """Return the value of `--flag=value` or `--flag value`, empty for a bare flag."""
        for index, word in enumerate(self.words):
            if word.startswith(f"{flag}="):
                return word[len(flag) + 1 :]
            if word == flag:
                following = self.words[index + 1 : index + 2]
                return following[0] if following and not following[0].startswith("-") else ""
        return None


class Script:
    """A parsed script. Lines are numbered from 1."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def _parsed(self) -> "_Parser":
        return _Parser(tokens_of(self.text))

    @property
    def commands(self) -> tuple[ShellCommand, ...]:
        return tuple(self._parsed.commands)

    @cached_property
    def functions(self) -> dict[str, tuple[ShellCommand, ...]]:
        bodies: dict[str, list[ShellCommand]] = {name: [] for name in self._parsed.function_names}
        for command in self.commands:
            if command.function is not None:
                bodies.setdefault(command.function, []).append(command)
        return {name: tuple(body) for name, body in bodies.items()}

    @cached_property
    def main(self) -> tuple[ShellCommand, ...]:
        return tuple(command for command in self.commands if command.function is None)

    @cached_property
    def flow(self) -> tuple[ShellCommand, ...]:
        """The main commands in the order of execution, each call followed by its function's body."""
        return tuple(islice(self._expanded(self.main, ()), MAX_FLOW))

    def _expanded(self, commands: Sequence[ShellCommand], calling: tuple[str, ...]) -> Iterator[ShellCommand]:
        for command in commands:
            yield command
            name = command.program
            if name in self.functions and name not in calling and len(calling) < MAX_CALLS:
                yield from self._expanded(self.functions[name], (*calling, name))

    def calls(self, program: str) -> list[ShellCommand]:
        return [command for command in self.commands if command.program == program]

    def reached_from(self, function: str) -> tuple[ShellCommand, ...]:
        """Return the commands of a function and of all functions of this script that it calls."""
        names = [function]
        for name in names:
            called = {command.program for command in self.functions.get(name, ())}
            names += sorted(called.intersection(self.functions).difference(names))
        return tuple(command for name in names for command in self.functions.get(name, ()))

    def place_of(self, command: ShellCommand) -> int:
        """Return a command's index in the flow; its length if it is not in the flow."""
        return self.flow.index(command) if command in self.flow else len(self.flow)

    def index_of(self, *words: str) -> int | None:
        """Return the index in the flow of the first command with exactly these words."""
        return next((index for index, command in enumerate(self.flow) if command.words == words), None)


@dataclass
class _Open:
    """A block that is not closed yet; `commands_before` is the number of commands at its start."""

    block: ShellBlock
    commands_before: int = 0


@dataclass
class _Parser:
    tokens: Sequence[ShellToken]
    around: tuple[ShellBlock, ...] = ()
    commands: list[ShellCommand] = field(default_factory=list)
    function_names: list[str] = field(default_factory=list)
    _index: int = 0
    _joined_by: str = ""
    _stack: list[_Open] = field(default_factory=list)
    _function: str | None = None
    """A name whose body is about to open."""

    def __post_init__(self) -> None:
        while self._index < len(self.tokens):
            before = self._index
            self._step()
            # Always advance, so that parsing of a broken script ends.
            self._index = max(self._index, before + 1)

    def _step(self) -> None:
        token = self.tokens[self._index]
        if not token.is_word and not _REDIRECT.match(token.text):
            self._operator(token)
        elif self._expects_pattern():
            self._skip_pattern()
        elif not (token.is_word and token.is_plain and self._keyword(token)):
            self._simple_command()

    def _operator(self, token: ShellToken) -> None:
        if token.text == "(":
            self._open("subshell", token)
        elif token.text == ")":
            self._close("subshell")
        elif token.text in (";;", ";&", ";;&") and self._stack and self._stack[-1].block.kind == "case":
            self._stack[-1].block = ShellBlock("pattern", token.line)
        if token.text in _LISTS:
            self._joined_by = token.text
        elif token.text != "\n":
            self._joined_by = ""
        self._index += 1

    def _expects_pattern(self) -> bool:
        return bool(self._stack) and self._stack[-1].block.kind == "pattern"

    def _skip_pattern(self) -> None:
        token = self.tokens[self._index]
        if token.text == "esac":
            self._close("pattern")
            self._index += 1
            return
        while self._index < len(self.tokens) and self.tokens[self._index].text != ")":
            self._index += 1
        self._index += 1
        self._stack[-1].block = ShellBlock("case", token.line)

    def _keyword(self, token: ShellToken) -> bool:
        """Handle a reserved word; return False if the word starts a command."""
        word = token.text
        if word in ("if", "while", "until"):
            self._open("if" if word == "if" else "while", token)
        elif word in _NO_CONDITION:
            self._turn(word, token)
        elif word in ("fi", "done", "esac", "}"):
            self._close({"fi": "if", "done": "loop", "esac": "case", "}": "group"}[word])
        elif word == "{":
            self._open("group", token)
        elif word in ("for", "select", "case"):
            self._head(token)
            return True
        elif word == "function":
            self._function = self._word_at(self._index + 1)
            self._index += 1
        elif word in ("!", "time", "coproc"):
            self._index += 1
            return True
        else:
            return False
        self._joined_by = ""
        self._index += 1
        return True

    def _word_at(self, index: int) -> str:
        return self.tokens[index].text if index < len(self.tokens) and self.tokens[index].is_word else ""

    def _head(self, token: ShellToken) -> None:
        """Skip `for x in a b` to its end, `case x in` to its first pattern."""
        is_case = token.text == "case"
        while self._index < len(self.tokens) and self.tokens[self._index].text not in ("\n", ";"):
            self._index += 1
            if is_case and self._word_at(self._index - 1) == "in":
                break
        self._open("pattern" if is_case else "while", token)

    def _open(self, kind: str, token: ShellToken) -> None:
        if self._function is not None and kind in ("group", "subshell"):
            self.function_names.append(self._function)
            self._stack.append(_Open(ShellBlock("function", token.line, self._function), len(self.commands)))
            self._function = None
        else:
            self._stack.append(_Open(ShellBlock(kind, token.line), len(self.commands)))

    def _turn(self, word: str, token: ShellToken) -> None:
        """Switch from a condition to its body."""
        if not self._stack:
            return
        top = self._stack[-1]
        conditions = top.block.conditions or tuple(self.commands[top.commands_before :])
        if word == "elif":
            self._stack[-1] = _Open(ShellBlock("if", token.line), len(self.commands))
        else:
            kind = {"then": "then", "else": "else", "do": "loop"}[word]
            self._stack[-1] = _Open(ShellBlock(kind, top.block.line, conditions=conditions), top.commands_before)

    def _close(self, kind: str) -> None:
        closes = {"if": ("if", "then", "else"), "loop": ("while", "loop"), "case": ("case", "pattern")}
        wanted = (*closes.get(kind, (kind,)), *(("function",) if kind in ("group", "subshell") else ()))
        if self._stack and self._stack[-1].block.kind in wanted:
            self._stack.pop()

    def _simple_command(self) -> None:
        first = self.tokens[self._index]
        words: list[str] = []
        assignments: list[str] = []
        redirects: list[tuple[str, str]] = []
        inner: list[tuple[ShellToken, ...]] = []
        is_test = first.text == "[["
        while self._index < len(self.tokens):
            token = self.tokens[self._index]
            if _REDIRECT.match(token.text) and not token.is_word and not is_test:
                redirects.append((token.text, self._target(inner)))
            elif token.is_word:
                inner += token.substitutions
                self._take(token, words, assignments)
                is_test = is_test and token.text != "]]"
            elif not is_test or token.text == "\n":
                break
            self._index += 1
        if self._defines_function(words):
            return
        self._add(first, words, assignments, redirects, inner)

    def _take(self, token: ShellToken, words: list[str], assignments: list[str]) -> None:
        if not words and _ASSIGNMENT.match(token.text):
            assignments.append(token.text)
        else:
            words.append(token.text)

    def _target(self, inner: list[tuple[ShellToken, ...]]) -> str:
        if self._index + 1 >= len(self.tokens) or not self.tokens[self._index + 1].is_word:
            return ""
        self._index += 1
        token = self.tokens[self._index]
        inner += token.substitutions
        return token.text if token.body is None else token.body

    def _defines_function(self, words: list[str]) -> bool:
        following = [token.text for token in self.tokens[self._index : self._index + 2]]
        if len(words) == 1 and following == ["(", ")"]:
            self._function = words[0]
            self._index += 2
            return True
        return False

    def _add(
        self,
        first: ShellToken,
        words: list[str],
        assignments: list[str],
        redirects: list[tuple[str, str]],
        inner: list[tuple[ShellToken, ...]],
    ) -> None:
        ended_by = self.tokens[self._index].text if self._index < len(self.tokens) else ""
        blocks = (*self.around, *(opened.block for opened in self._stack))
        if words or assignments:
            command = ShellCommand(
                first.line, tuple(words), tuple(assignments), tuple(redirects), blocks, self._joined_by, ended_by
            )
            self.commands.append(command)
        self._joined_by = ""
        for tokens in inner:
            self.commands += _Parser(tokens, (*blocks, ShellBlock("substitution", first.line))).commands
