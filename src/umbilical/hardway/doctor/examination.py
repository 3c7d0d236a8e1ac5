"""Everything the doctor looks at, from what is nearest to what is farthest: files, record, machines."""

from collections.abc import Mapping, Sequence

from umbilical.hardway import webhook, workload
from umbilical.hardway.csr_rounds import SIGNATURES as REQUESTS
from umbilical.hardway.doctor import machines
from umbilical.hardway.doctor.artifacts import examine_artifacts
from umbilical.hardway.doctor.diagnosis import Diagnosis
from umbilical.hardway.doctor.record import examine_record
from umbilical.hardway.site import Site
from umbilical.hardway.stage import Stage
from umbilical.hardway.stages.live import LiveStage
from umbilical.hardway.state import State
from umbilical.hardway.waiting import Signature
from umbilical.manifests.tree import Asset


def examine(
    site: Site, state: State, on_disk: Mapping[str, Asset], stages: Sequence[Stage], *, is_locked: bool
) -> list[Diagnosis]:
    known = signatures(site, stages)
    found = [*examine_artifacts(site, on_disk), *examine_record(stages, state, known, is_locked=is_locked)]
    if machines.are_up(site):
        found += machines.examine_machines(site, state, stages, known)
    return found


def signatures(site: Site, stages: Sequence[Stage]) -> list[Signature]:
    """Collect what stages know of failures, each once."""
    of_stages = [
        one
        for stage in stages
        if isinstance(stage, LiveStage)
        for sight in stage.make_sights(site)
        for one in sight.signatures
    ]
    shared = (*machines.BALANCER, *REQUESTS, *webhook.SIGNATURES, *workload.SIGNATURES)
    return list(dict.fromkeys((*of_stages, *shared)))
