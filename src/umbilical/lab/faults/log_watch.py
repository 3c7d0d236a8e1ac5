"""Waits for a line of the server's or the agents' log that carries a code and was not there before."""

from collections.abc import Iterator

from umbilical.bootstrap.names import AGENT_NAME, SERVER_NAME
from umbilical.lab.faults.fault import Speaker
from umbilical.lab.scene import BOOTSTRAP, Scene


class LogWatch:
    """Begin it before the fault. Lines carry microseconds, so one that was there before is told by its text alone:

    a kubelet deletes the logs of pods that are gone, and positions in them would lie.
    """

    def __init__(self, scene: Scene, speaker: Speaker, code: str) -> None:
        self._scene = scene
        self._speaker = speaker
        self._code = code
        self._before = set(self._lines())

    def fresh(self) -> str | None:
        """Return the first new line, named after the pod that said it."""
        return next((line for line in self._lines() if line not in self._before), None)

    def _lines(self) -> Iterator[str]:
        runner, lab = self._scene.runner, self._scene.lab
        for node, name in self._pods():
            for line in runner.logs(lab, node, name, name).splitlines():
                if self._code in line:
                    yield f"{node}/{name}: {line.strip()}"

    def _pods(self) -> list[tuple[str, str]]:
        if self._speaker is Speaker.SERVER:
            return [(BOOTSTRAP, SERVER_NAME)]
        if self._speaker is Speaker.AGENTS:
            return [(node.name, AGENT_NAME) for node in self._scene.members]
        return []
