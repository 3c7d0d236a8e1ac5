"""What is wrong with a pod, or in its way."""

from umbilical.lab.errors import LabError


class PodError(LabError):
    """This pod cannot run as it is written, or not yet."""


class Waiting(PodError):
    """Something that the pod needs is not there yet; it is asked for again. `reason` is the kubelet's word for it."""

    def __init__(self, code: str, what: str, why: str, remedy: str, reason: str) -> None:
        super().__init__(code, what, why, remedy)
        self.reason = reason
