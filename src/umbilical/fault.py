"""The three lines that a user sees when something fails: what, why, what next, under a code of docs/errors.md.

Every room that tells users of failures has its own kind of it; `cli` prints them all alike.
"""


class Fault(Exception):
    """`str()` is the whole message, code first."""

    def __init__(self, code: str, what: str, why: str, remedy: str) -> None:
        super().__init__(f"{code} {what}\n  why: {why}\n  next: {remedy}")
        self.code = code
        self.what = what
        self.why = why
        self.remedy = remedy

    @property
    def brief(self) -> str:
        """One line, for logs of loops that go on."""
        return f"{self.code} {self.what}: {self.why}"
