"""Makes the software bill of materials of a release with CycloneDX's library: the same bytes for the same input."""

import hashlib
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime

from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import LicenseExpression
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from packageurl import PackageURL

import lock


def render(version: str, packages: Sequence[lock.Package], epoch: int) -> str:
    """Return the document for the wheels: Umbilical, and every package of the lock below what asked for it."""
    ourselves = Component(
        name=lock.OURSELVES,
        version=version,
        type=ComponentType.APPLICATION,
        licenses=[LicenseExpression("Apache-2.0")],
        bom_ref=lock.OURSELVES,
        purl=PackageURL("pypi", None, lock.OURSELVES, version),
    )
    components = {
        package.name: Component(
            name=package.name,
            version=package.version,
            type=ComponentType.LIBRARY,
            bom_ref=package.name,
            purl=PackageURL("pypi", None, package.name, package.version),
        )
        for package in packages
    }
    bom = Bom(components=components.values())
    bom.metadata.component = ourselves
    bom.metadata.timestamp = datetime.fromtimestamp(epoch, UTC)
    bom.serial_number = _serial(version, packages)
    for owner, component in {lock.OURSELVES: ourselves, **components}.items():
        bom.register_dependency(component, [components[one.name] for one in packages if owner in one.wanted_by])
    return make_outputter(bom, OutputFormat.JSON, SchemaVersion.V1_6).output_as_string(indent=2) + "\n"


def _serial(version: str, packages: Sequence[lock.Package]) -> uuid.UUID:
    """A number from the content: a random one would make each build of the same release another document."""
    content = "\n".join([version, *(f"{one.name}=={one.version}" for one in packages)])
    return uuid.uuid5(uuid.NAMESPACE_URL, hashlib.sha256(content.encode()).hexdigest())
