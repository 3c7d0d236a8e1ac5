"""Labels and label selectors, with the grammar and error texts of Kubernetes, which users see."""

import re
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Final

from umbilical.record import Record

Labels = Mapping[str, str]

NAME_CHARACTERS: Final = 63
PREFIX_CHARACTERS: Final = 253
# Not compiled here: most servers and agents never use them, and start faster.
_NAME: Final = r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_VALUE: Final = r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?"
_NAME_RULE: Final = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character "
    "(e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_VALUE_RULE: Final = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
_PREFIX_RULE: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
    "and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_PREFIX: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
# Longest symbol first, so that `==` is not read as two `=`.
_TOKEN: Final = r"\s*(?:(?P<symbol>==|!=|[=!<>(),])|(?P<word>[^\s=!<>(),]+)|(?P<end>$))"

_NO_WORD: Final = frozenset({"", "==", "!=", "=", "!", "<", ">", "(", ")", ","})


class SelectorError(ValueError):
    """The text is not a label selector."""


class LabelError(ValueError):
    """The text is not a list of labels."""


class Operator(Enum):
    IN = "in"
    NOT_IN = "notin"
    EXISTS = "exists"
    MISSING = "!"
    GREATER = ">"
    LESS = "<"


_EXACT: Final = {
    "=": Operator.IN,
    "==": Operator.IN,
    "!=": Operator.NOT_IN,
    ">": Operator.GREATER,
    "<": Operator.LESS,
}
_SETS: Final = {"in": Operator.IN, "notin": Operator.NOT_IN}


def parse_labels(text: str) -> dict[str, str]:
    """Read `key=value,key2=value2` as upstream's `--lease-label` does. Raises LabelError: with upstream's text."""
    if not text:
        raise LabelError("empty string provided")
    labels: dict[str, str] = {}
    for pair in text.split(","):
        parts = pair.split("=")
        if len(parts) != 2:
            raise LabelError(f"invalid label format: {pair}")
        labels[parts[0].strip()] = parts[1].strip()
    return labels


def format_labels(labels: Labels) -> str:
    """Format labels as a selector that requires all of them, sorted."""
    return ",".join(f"{key}={labels[key]}" for key in sorted(labels))


class Requirement(Record):
    key: str
    operator: Operator
    values: frozenset[str] = frozenset()

    def matches(self, labels: Labels) -> bool:
        value = labels.get(self.key)
        match self.operator:
            case Operator.EXISTS:
                return value is not None
            case Operator.MISSING:
                return value is None
            case Operator.IN:
                return value in self.values
            case Operator.NOT_IN:
                # A missing label counts as different: Kubernetes' rule for != and notin.
                return value not in self.values
        return value is not None and _compare(value, self.operator, next(iter(self.values)))


class Selector(Record):
    """All requirements must match; without requirements it selects everything."""

    requirements: tuple[Requirement, ...] = ()

    def matches(self, labels: Labels) -> bool:
        return all(requirement.matches(labels) for requirement in self.requirements)


def parse_selector(text: str) -> Selector:
    """Read `a=b, c!=d, e in (f,g), h notin (i), j, !k, l>1`. Raises SelectorError: with kubectl's text."""
    return _Parser(text).selector()


class _Parser:
    """Recursive descent over the words and symbols of one selector."""

    def __init__(self, text: str) -> None:
        self._tokens = list(_tokens(text))
        self._position = 0

    def selector(self) -> Selector:
        requirements: list[Requirement] = []
        while self._next():
            if not self._at_key() and self._next() != "!":
                raise SelectorError(f"found '{self._next()}', expected: !, identifier, or 'end of string'")
            requirements.append(self._checked_requirement())
            self._separator()
        return Selector(tuple(requirements))

    def _separator(self) -> None:
        found = self._take()
        if found == ",":
            if not self._at_key() and self._next() != "!":
                raise SelectorError(f"found '{self._next()}', expected: identifier after ','")
        elif found:
            raise SelectorError(f"found '{found}', expected: ',' or 'end of string'")

    def _checked_requirement(self) -> Requirement:
        try:
            return self._requirement()
        except SelectorError as error:
            raise SelectorError(f"unable to parse requirement: {error}") from error

    def _requirement(self) -> Requirement:
        if self._next() == "!":
            self._take()
            return Requirement(self._key(), Operator.MISSING)
        key = self._key()
        if self._next() in ("", ","):
            return Requirement(key, Operator.EXISTS)
        found = self._take()
        if found in _SETS:
            return Requirement(key, _SETS[found], frozenset(_checked_values(key, self._value_set())))
        if found in _EXACT:
            return self._exact(key, _EXACT[found])
        raise SelectorError(f"found '{found}', expected: in, notin, =, ==, !=, gt, lt")

    def _exact(self, key: str, operator: Operator) -> Requirement:
        value = "" if self._next() in ("", ",") else self._word("identifier")
        if operator in (Operator.GREATER, Operator.LESS) and _integer(value) is None:
            raise SelectorError(
                f"values[0]: Invalid value: \"{value}\": for 'Gt', 'Lt' operators, the value must be an integer"
            )
        return Requirement(key, operator, frozenset(_checked_values(key, [value])))

    def _key(self) -> str:
        key = self._word("identifier")
        faults = list(_key_faults(key))
        if faults:
            raise SelectorError(f'<nil>: Invalid value: "{key}": ' + "; ".join(faults))
        return key

    def _value_set(self) -> list[str]:
        """Read `(a,b,)`: nothing between commas is the empty value."""
        if (found := self._take()) != "(":
            raise SelectorError(f"found '{found}' expected: '('")
        values: list[str] = []
        while True:
            values.append("" if self._next() in (",", ")") else self._word("',', ')' or identifier"))
            found = self._take()
            if found == ")":
                return values
            if found != ",":
                raise SelectorError(f"found '{found}', expected: ',' or ')'")

    def _word(self, expected: str) -> str:
        if not self._at_key():
            raise SelectorError(f"found '{self._next()}', expected: {expected}")
        return self._take()

    def _at_key(self) -> bool:
        return self._next() not in _NO_WORD

    def _next(self) -> str:
        return self._tokens[self._position] if self._position < len(self._tokens) else ""

    def _take(self) -> str:
        found = self._next()
        self._position += 1
        return found


def _tokens(text: str) -> Iterable[str]:
    for found in re.finditer(_TOKEN, text):
        token = found["symbol"] or found["word"]
        if token:
            yield token


def _checked_values(key: str, values: list[str]) -> list[str]:
    for value in values:
        where = f'values[0][{key}]: Invalid value: "{value}"'
        if len(value) > NAME_CHARACTERS:
            raise SelectorError(f"{where}: must be no more than {NAME_CHARACTERS} bytes")
        if re.fullmatch(_VALUE, value) is None:
            raise SelectorError(f"{where}: {_VALUE_RULE}")
    return values


def _key_faults(key: str) -> Iterable[str]:
    prefix, slash, name = key.partition("/")
    if not slash:
        yield from _name_faults(key)
    elif "/" in name:
        prefix_rule = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        yield f"a valid label key {_NAME_RULE} {prefix_rule}"
    else:
        yield from _prefix_faults(prefix)
        yield from _name_faults(name)


def _prefix_faults(prefix: str) -> Iterable[str]:
    if not prefix:
        yield "prefix part must be non-empty"
        return
    if len(prefix) > PREFIX_CHARACTERS:
        yield f"prefix part must be no more than {PREFIX_CHARACTERS} bytes"
    if re.fullmatch(_PREFIX, prefix) is None:
        yield f"prefix part {_PREFIX_RULE}"


def _name_faults(name: str) -> Iterable[str]:
    if not name:
        yield "name part must be non-empty"
    elif len(name) > NAME_CHARACTERS:
        yield f"name part must be no more than {NAME_CHARACTERS} bytes"
    if re.fullmatch(_NAME, name) is None:
        yield f"name part {_NAME_RULE}"


def _compare(value: str, operator: Operator, bound: str) -> bool:
    left, right = _integer(value), _integer(bound)
    if left is None or right is None:
        return False
    return left > right if operator is Operator.GREATER else left < right


def _integer(text: str) -> int | None:
    return int(text) if re.fullmatch(r"[+-]?[0-9]+", text) else None
