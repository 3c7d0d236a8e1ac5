"""Splits a bash script into words and operators: quotes, comments, continued lines, here-documents, substitutions.

Supports enough of the grammar to distinguish commands from comments and texts. It never fails: an open quote ends with
the script; `bash -n` reports such errors.
"""

import re
from bisect import bisect_left
from dataclasses import dataclass, replace
from typing import Final

# Nesting of $( … ). Beyond it a $ is plain text, so that no script exhausts the stack.
MAX_DEPTH: Final = 30

_REDIRECT: Final = re.compile(r"&>>?|[0-9]*(?:<<<|<<-?|<&|<>|>>|>&|>\||[<>](?!\())")
_OPERATOR: Final = re.compile(r";;&|;;|;&|;|&&|&|\|\||\|&|\||\(|\)")
# Only space, tab and newline separate words; a carriage return does not.
_PLAIN: Final = re.compile(r"[^ \t\n\\'\"`$;&|<>()]+")
_PLAIN_QUOTED: Final = re.compile(r"[^\\\"`$]+")
_BLANKS: Final = re.compile(r"(?:[ \t]|\\\n)*(?:#[^\n]*)?")
_PAIRED: Final = re.compile(r"\\.|'[^']*'|[{}()]", re.DOTALL)
_ARRAY: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=")


@dataclass(frozen=True)
class ShellToken:
    """A word, an operator, or the end of a line (text `\\n`)."""

    text: str
    """Of a word: without its quotes; variables and substitutions are not expanded."""
    line: int
    is_word: bool = False
    is_plain: bool = False
    """Without quotes: only such a word can be a keyword."""
    substitutions: tuple[tuple["ShellToken", ...], ...] = ()
    body: str | None = None
    """The here-document, for the word after `<<`."""


def tokens_of(script: str) -> list[ShellToken]:
    return _Scanner(script).scan(ends_at=None, depth=0)


class _Scanner:
    def __init__(self, script: str) -> None:
        self._script = script
        self._position = 0
        self._newlines = [match.start() for match in re.finditer("\n", script)]

    def scan(self, ends_at: str | None, depth: int) -> list[ShellToken]:
        """Read tokens to the end, or to the unpaired parenthesis that ends a substitution."""
        tokens: list[ShellToken] = []
        awaited: list[int] = []  # indexes of the words after <<, whose bodies begin on the next line
        parentheses = 0
        while self._position < len(self._script):
            self._skip_blanks()
            token = self._next(depth)
            if token is None:
                break
            if token.text == ")" and not token.is_word and ends_at == ")" and parentheses == 0:
                return tokens
            parentheses += {"(": 1, ")": -1}.get(token.text, 0) if not token.is_word else 0
            if token.is_word and tokens and tokens[-1].text.lstrip("0123456789") in ("<<", "<<-"):
                awaited.append(len(tokens))
            tokens.append(token)
            if token.text == "\n" and not token.is_word:
                self._read_bodies(tokens, awaited)
        return tokens

    def _skip_blanks(self) -> None:
        match = _BLANKS.match(self._script, self._position)
        assert match is not None
        self._position = match.end()

    def _next(self, depth: int) -> ShellToken | None:
        start = self._position
        if start >= len(self._script):
            return None
        line = bisect_left(self._newlines, start) + 1
        if self._script[start] == "\n":
            self._position += 1
            return ShellToken("\n", line)
        match = _REDIRECT.match(self._script, start) or _OPERATOR.match(self._script, start)
        if match:
            self._position = match.end()
            return ShellToken(match.group(), line)
        return self._word(line, depth)

    def _word(self, line: int, depth: int) -> ShellToken:
        start = self._position
        parts: list[str] = []
        inner: list[tuple[ShellToken, ...]] = []
        while self._position < len(self._script):
            char = self._script[self._position]
            plain = _PLAIN.match(self._script, self._position)
            if plain:
                parts.append(plain.group())
                self._position = plain.end()
            elif char == "\\":
                parts.append(self._escaped())
            elif char == "'":
                parts.append(self._until("'"))
            elif char == '"':
                self._quoted(parts, inner, depth)
            elif char in "$`":
                self._expansion(parts, inner, depth)
            elif self._opens_group(char, start):
                self._group(parts, inner, depth)
            else:
                break
        raw = self._script[start : self._position]
        is_plain = not any(mark in raw for mark in "'\"\\")
        return ShellToken("".join(parts), line, True, is_plain, tuple(inner))

    def _opens_group(self, char: str, start: int) -> bool:
        """Whether a parenthesis belongs to the word: <( … ) and name=( … )."""
        following = self._script[self._position + 1 : self._position + 2]
        if char in "<>" and following == "(":
            return True
        return char == "(" and _ARRAY.fullmatch(self._script, start, self._position) is not None

    def _group(self, parts: list[str], inner: list[tuple[ShellToken, ...]], depth: int) -> None:
        start = self._position
        is_array = self._script[start] == "("
        self._position += 1 if is_array else 2
        tokens = self.scan(ends_at=")", depth=depth + 1) if depth < MAX_DEPTH else []
        if is_array:
            inner += [substitution for token in tokens for substitution in token.substitutions]
        else:
            inner.append(tuple(tokens))
        parts.append(self._script[start : self._position])

    def _escaped(self) -> str:
        following = self._script[self._position + 1 : self._position + 2]
        self._position = min(self._position + 2, len(self._script))
        return "" if following == "\n" else following

    def _until(self, mark: str) -> str:
        """Read a quoted text without escapes; return it without its marks."""
        start = self._position + 1
        end = self._script.find(mark, start)
        end = len(self._script) if end < 0 else end
        self._position = min(end + 1, len(self._script))
        return self._script[start:end]

    def _quoted(self, parts: list[str], inner: list[tuple[ShellToken, ...]], depth: int) -> None:
        self._position += 1
        while self._position < len(self._script):
            plain = _PLAIN_QUOTED.match(self._script, self._position)
            char = self._script[self._position]
            if plain:
                parts.append(plain.group())
                self._position = plain.end()
            elif char == '"':
                self._position += 1
                return
            elif char == "\\":
                parts.append(self._escaped_in_quotes())
            else:
                self._expansion(parts, inner, depth)

    def _escaped_in_quotes(self) -> str:
        following = self._script[self._position + 1 : self._position + 2]
        kept = self._escaped()
        return kept if following in '$`"\\\n' else f"\\{kept}"

    def _expansion(self, parts: list[str], inner: list[tuple[ShellToken, ...]], depth: int) -> None:
        start = self._position
        following = self._script[start + 1 : start + 3]
        if self._script[start] == "`":
            text = self._until("`")
            inner.append(tuple(tokens_of(text)) if depth < MAX_DEPTH else ())
        elif following.startswith("'"):
            self._position += 1
            parts.append(self._until("'"))
            return
        elif following.startswith("(") and following != "((" and depth < MAX_DEPTH:
            self._position += 2
            inner.append(tuple(self.scan(ends_at=")", depth=depth + 1)))
        elif following.startswith("{") or following == "((":
            self._braced()
        else:
            self._position += 1
        parts.append(self._script[start : self._position])

    def _braced(self) -> None:
        """Skip ${ … } or $(( … )): paired braces and parentheses, quotes skipped."""
        opened = 0
        for match in _PAIRED.finditer(self._script, self._position):
            opened += {"{": 1, "(": 1, "}": -1, ")": -1}.get(match.group(), 0)
            if opened == 0 and match.group() in "})":
                self._position = match.end()
                return
        self._position = len(self._script)

    def _read_bodies(self, tokens: list[ShellToken], awaited: list[int]) -> None:
        for index in awaited:
            word = tokens[index]
            strip = "\t" if tokens[index - 1].text.endswith("-") else ""
            tokens[index] = replace(word, body=self._body(word, strip))
        awaited.clear()

    def _body(self, word: ShellToken, strip: str) -> str:
        lines: list[str] = []
        while self._position < len(self._script):
            end = self._script.find("\n", self._position)
            end = len(self._script) if end < 0 else end
            line = self._script[self._position : end].lstrip(strip) if strip else self._script[self._position : end]
            self._position = min(end + 1, len(self._script))
            if line == word.text:
                break
            lines.append(f"{line}\n")
        return "".join(lines)
