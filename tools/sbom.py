"""Makes the software bill of materials of a release with CycloneDX's library: the same bytes for the same input."""

import hashlib
import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import LicenseExpression
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL

import lock


def render(version: str, packages: Sequence[lock.Package], epoch: int) -> str:
    """Return the document for the wheels: Umbilical, and every package of the lock below what asked for it."""
    ourselves = python_component(lock.OURSELVES, version, "Apache-2.0", ComponentType.APPLICATION)
    components = {package.name: python_component(package.name, package.version) for package in packages}
    below = {
        owner: [package.name for package in packages if owner in package.wanted_by]
        for owner in (lock.OURSELVES, *components)
    }
    content = "\n".join([version, *(f"{one.name}=={one.version}" for one in packages)])
    return document(ourselves, components, below, content, epoch)


def python_component(
    name: str, version: str, licence: str = "", kind: ComponentType = ComponentType.LIBRARY
) -> Component:
    return Component(
        name=name,
        version=version,
        type=kind,
        licenses=[LicenseExpression(licence)] if licence else [],
        bom_ref=name,
        purl=PackageURL("pypi", None, name, version),
    )


def document(
    root: Component, components: Mapping[str, Component], below: Mapping[str, Sequence[str]], content: str, epoch: int
) -> str:
    """Return the document of what the root has; `below` has the dependencies of each, by their references.

    Its number is made from the content: a random one would make each build of the same release another document.
    Raises ValueError: it does not follow CycloneDX's schema.
    """
    bom = Bom(components=components.values())
    bom.metadata.component = root
    bom.metadata.timestamp = datetime.fromtimestamp(epoch, UTC)
    bom.serial_number = uuid.uuid5(uuid.NAMESPACE_URL, hashlib.sha256(content.encode()).hexdigest())
    for component in (root, *components.values()):
        wanted = below.get(str(component.bom_ref.value), ())
        bom.register_dependency(component, [components[name] for name in wanted])
    text = make_outputter(bom, OutputFormat.JSON, SchemaVersion.V1_6).output_as_string(indent=2) + "\n"
    fault = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    if fault is not None:
        raise ValueError(f"the SBOM of {root.name} is not valid: {fault}")
    return text
