"""When answers of a probe that come one by one make a verdict: so many of a kind in a row, as the kubelet counts."""


class Verdict:
    """`is_good` is None until there were enough answers of one kind."""

    def __init__(self, success_threshold: int, failure_threshold: int) -> None:
        self.is_good: bool | None = None
        self._thresholds = {True: success_threshold, False: failure_threshold}
        self._last: bool | None = None
        self._in_a_row = 0

    def saw(self, success: bool) -> bool | None:
        """Count one answer and return the verdict now."""
        self._in_a_row = self._in_a_row + 1 if success == self._last else 1
        self._last = success
        if self._in_a_row >= self._thresholds[success]:
            self.is_good = success
        return self.is_good
