"""Why a server or an agent cannot start: what failed, why, and what to do next, under a code of docs/errors.md."""


class StartupError(Exception):
    def __init__(self, code: str, what: str, why: str, next: str) -> None:
        super().__init__(f"{what}: {why}")
        self.code = code
        self.what = what
        self.why = why
        self.next = next
