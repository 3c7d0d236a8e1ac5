"""`umbilical firewall render`: the rule in the form that a platform's tools take, or written into its manifests."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from umbilical.cli.options import FILE
from umbilical.fault import BootstrapError
from umbilical.firewall.forms.render import Form, forms, manifest_edit
from umbilical.firewall.forms.render import render as rule_text
from umbilical.firewall.platforms.catalogue import platform_of
from umbilical.firewall.platforms.platform import ManifestEdit, Platform
from umbilical.firewall.platforms.request import (
    DEFAULT_PORT,
    NATIVE_SINCE,
    RuleRequest,
    parse_network,
    parse_release,
    unusable,
)

if TYPE_CHECKING:
    from umbilical.bootstrap.install_dir import InstallDir

_DIRECTORY: Final = click.Path(path_type=Path, file_okay=False)


@click.command()
@click.option("--platform", "platform_name", metavar="NAME", help="As `umbilical firewall list` names it.")
@click.option("--dir", "directory", type=_DIRECTORY, help="An install directory: it knows platform, id and networks.")
@click.option("--infra-id", metavar="ID", help="The cluster's infra id, from metadata.json.")
@click.option(
    "--machine-network",
    "networks",
    metavar="CIDR",
    multiple=True,
    help="A network that nodes are in; may be given again.",
)
@click.option(
    "--source", "sources", metavar="CIDR", multiple=True, help="Nodes' own addresses instead; may be given again."
)
@click.option("--port", type=int, default=DEFAULT_PORT, show_default=True, help="The server's port for agents.")
@click.option("--release", metavar="4.NN", help="The installer's release: names and lifetimes differ.")
@click.option(
    "-o", "--output", type=click.Choice([form.value for form in Form]), help="The form; else the first that fits."
)
@click.option("--close", "closing", is_flag=True, help="Write what takes the rule away again.")
@click.option("--apply", "applying", is_flag=True, help="With --dir: change the manifest instead of showing how.")
@click.option("--out", type=FILE, help="Write to this new file instead of standard output.")
def render(**options: Any) -> int:
    """Write the rule in a form that the platform takes.

    It lets agents reach the bootstrap machine, from the narrowest source that the platform can name.
    """
    install = _install_dir(options["directory"])
    platform = platform_of(_platform_name(options["platform_name"], install))
    request = _request(options, platform, install)
    form = _form(options["output"], platform, has_directory=install is not None)
    if options["applying"] and (install is None or form is not Form.CAPI):
        raise click.UsageError("--apply changes a manifest: it goes with --dir and -o capi alone")
    if install is not None and form is Form.CAPI:
        changes = {"closing": options["closing"], "applying": options["applying"], "out": options["out"]}
        _edit_manifest(install, manifest_edit(platform, request), request, **changes)
    else:
        _put(rule_text(platform, request, form, closing=options["closing"]), options["out"])
    if not options["closing"]:
        _tell_remarks(platform, request)
    return 0


def _install_dir(directory: Path | None) -> "InstallDir | None":
    if directory is None:
        return None
    from umbilical.bootstrap.install_dir import InstallDir

    return InstallDir(directory)


def _platform_name(given: str | None, install: "InstallDir | None") -> str:
    if given is not None:
        return given
    if install is None:
        raise click.UsageError("name the platform: --platform NAME, or --dir INSTALL_DIR that knows it")
    return install.platform


def _request(options: dict[str, Any], platform: Platform, install: "InstallDir | None") -> RuleRequest:
    if options["sources"] and platform.names_nodes:
        why = f"{platform.name} names nodes by {platform.source}, which is narrower than any network"
        raise unusable("source", options["sources"][0], why, "leave --source out")
    # The same network twice would be two rules, the second of which a cloud refuses.
    given = tuple(dict.fromkeys(parse_network(text) for text in options["sources"] or options["networks"]))
    release = None if options["release"] is None else parse_release(options["release"])
    infra_id, networks = options["infra_id"], given
    if install is not None:
        infra_id = infra_id or install.infra_id
        networks = networks or install.machine_networks
    return RuleRequest(infra_id or "", options["port"], networks, release)


def _form(given: str | None, platform: Platform, *, has_directory: bool) -> Form:
    if given is not None:
        return Form(given)
    known = forms(platform)
    return Form.CAPI if has_directory and Form.CAPI in known else known[0]


def _edit_manifest(
    install: "InstallDir", edit: ManifestEdit, request: RuleRequest, *, closing: bool, applying: bool, out: Path | None
) -> None:
    from umbilical.firewall.forms.capi import closed, opened

    path = install.manifests / edit.file
    before = _manifest_text(install, path)
    after = closed(before, edit) if closing else opened(before, edit)
    if after == before:
        told = "has no rule of ours" if closing else f"lets TCP {request.port} in already"
        click.echo(f"nothing to do: {path} {told}", err=True)
    elif applying:
        _replace(path, after)
        click.echo(f"changed {path}; now: openshift-install create cluster --dir {install.path}", err=True)
    else:
        _put(_difference(path, before, after), out)


def _manifest_text(install: "InstallDir", path: Path) -> str:
    if install.has_ignition_configs:
        raise BootstrapError(
            "UMB163",
            f"too late to change {path}",
            "`create ignition-configs` has run: the installer has taken the manifests in and reads them no more",
            "open the port with -o cli while the install runs, or begin again at `create manifests`",
        )
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        why = f"{getattr(error, 'strerror', None) or error}; installers that use Terraform write none"
        remedy = f"openshift-install create manifests --dir {install.path}; or open the port by -o cli"
        raise BootstrapError("UMB164", f"cannot read {path}", why, remedy) from None


def _replace(path: Path, text: str) -> None:
    from umbilical.host.files import write_file

    write_file(path, text.encode(), path.stat().st_mode & 0o777, overwrite=True)


def _difference(path: Path, before: str, after: str) -> str:
    from difflib import unified_diff

    lines = unified_diff(before.splitlines(True), after.splitlines(True), f"{path}", f"{path} (changed)")
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def _put(text: str, out: Path | None) -> None:
    if out is None:
        click.echo(text, nl=False)
        return
    from umbilical.host.files import write_public

    write_public(out, text.encode())
    click.echo(f"wrote {out}", err=True)


def _tell_remarks(platform: Platform, request: RuleRequest) -> None:
    if request.release is not None and request.release >= NATIVE_SINCE:
        click.echo(f"note: in {request.release} made by {platform.made_by}", err=True)
    for remark in platform.remarks:
        click.echo(f"note: {remark}", err=True)
