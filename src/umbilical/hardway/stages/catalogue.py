"""All stages in order, with their topics and their undo functions."""

from collections.abc import Mapping
from typing import Final

from umbilical.hardway import undoing
from umbilical.hardway.explain.entry import Topic
from umbilical.hardway.stage import Stage
from umbilical.hardway.stages import (
    artifact_stages,
    s01_prerequisites,
    s02_infrastructure,
    s03_understand,
    s04_release,
    s10_bootstrap,
    s11_masters,
    s12_control_plane,
    s13_pivot,
    s15_worker_csrs,
    s16_convergence,
    s17_verification,
)
from umbilical.hardway.stages.live import LiveStage

_FIRST: Final = (s01_prerequisites, s02_infrastructure, s03_understand, s04_release)
_LIVE: Final[tuple[LiveStage, ...]] = (
    s10_bootstrap.INSTALL,
    s10_bootstrap.STAGE,
    s11_masters.STAGE,
    s12_control_plane.STAGE,
    s13_pivot.STAGE,
    s15_worker_csrs.WORKERS,
    s15_worker_csrs.STAGE,
    s16_convergence.STAGE,
    s17_verification.STAGE,
)
_STAGES: Final[tuple[Stage, ...]] = (*(module.STAGE for module in _FIRST), *artifact_stages.STAGES, *_LIVE)


def stages() -> tuple[Stage, ...]:
    return _STAGES


def topics() -> tuple[Topic, ...]:
    """Explanations of the stages, in order."""
    first = tuple(module.TOPIC for module in _FIRST)
    return (*first, *artifact_stages.TOPICS, *(stage.topic for stage in _LIVE))


def undoers() -> Mapping[str, undoing.Undoer]:
    """All undo functions by name: shared ones and those of single stages."""
    return {**undoing.UNDOERS, **s04_release.UNDOERS, **s12_control_plane.UNDOERS, **s13_pivot.UNDOERS}
