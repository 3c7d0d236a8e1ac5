"""What the machine refused, in the three lines that a user sees."""


class HostError(Exception):
    """Something on this machine is not as needed; `str()` is the whole message, code first."""

    def __init__(self, code: str, what: str, why: str, remedy: str) -> None:
        super().__init__(f"{code} {what}\n  why: {why}\n  next: {remedy}")
        self.code = code
        self.what = what
        self.why = why
        self.remedy = remedy
