"""Which release line a bootkube.sh is of: the file does not say, but stages and flags came over time."""

from typing import Final

from umbilical.bootstrap.patch.anchors import PATTERNS, Anchor

_SIGNS: Final = (
    ("4.12", PATTERNS[Anchor.LIBRARIES][0].text),
    ("4.13", "touch node-tuning-bootstrap.done"),
    ("4.15", "touch api-bootstrap.done"),
    ("4.16", "touch api-dns-resolved.done"),
    ("4.18", "KUBERNETES_VERSION="),
    ("4.19", "touch auth-api-bootstrap.done"),
    ("4.21", "--log-driver=k8s-file"),
    ("4.23", ". /usr/local/bin/konnectivity.sh"),
)


def release_line(bootkube: str) -> str:
    """Say which releases have such a script, for people: "4.16 to 4.17". It decides nothing."""
    words = [line.strip() for line in bootkube.split("\n")]
    seen = [index for index, (_, sign) in enumerate(_SIGNS) if any(_shows(line, sign) for line in words)]
    if not seen:
        return "4.11 or older"
    since = _SIGNS[seen[-1]][0]
    if seen[-1] + 1 == len(_SIGNS):
        return f"{since} or newer"
    until = _line_before(_SIGNS[seen[-1] + 1][0])
    return since if since == until else f"{since} to {until}"


def _shows(line: str, sign: str) -> bool:
    return line.startswith(sign) or f" {sign} " in line


def _line_before(release: str) -> str:
    major, minor = release.split(".")
    return f"{major}.{int(minor) - 1}"
