"""The syntax of Kubernetes label selectors and label lists, checked before anything is asked of an apiserver."""

import re
from typing import Final

from umbilical.cli.go_values import ValueSyntaxError, quote

_NAME: Final = r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_DOMAIN: Final = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*"
_KEY: Final = rf"(?:{_DOMAIN}/)?{_NAME}"
_VALUE: Final = rf"(?:{_NAME})?"
_VALUES: Final = rf"\(\s*{_VALUE}\s*(?:,\s*{_VALUE}\s*)*\)"
_REQUIREMENT: Final = re.compile(
    rf"\s*(?:!\s*{_KEY}|{_KEY}(?:\s*(?:==?|!=)\s*{_VALUE}|\s*[<>]\s*-?[0-9]+|\s+(?:in|notin)\s*{_VALUES})?)\s*"
)
_COMMA_OUTSIDE_LIST: Final = re.compile(r",(?![^(]*\))")


def parse_selector(text: str) -> str:
    """Return the selector as it is if it can be one; an empty selector selects everything."""
    if not text.strip():
        return text
    for requirement in _COMMA_OUTSIDE_LIST.split(text):
        if not _REQUIREMENT.fullmatch(requirement):
            raise ValueSyntaxError(f"unable to parse requirement: {quote(requirement.strip())} is not a label selector")
    return text


def parse_labels(text: str) -> dict[str, str]:
    """Read `key=value,…`; raises ValueSyntaxError with upstream's text."""
    if not text:
        raise ValueSyntaxError("empty string provided")
    labels = {}
    for pair in text.split(","):
        parts = pair.split("=")
        if len(parts) != 2:
            raise ValueSyntaxError(f"invalid label format: {pair}")
        labels[parts[0].strip()] = parts[1].strip()
    return labels
