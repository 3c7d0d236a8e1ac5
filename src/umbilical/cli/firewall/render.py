"""`umbilical firewall render`: writes the rule for a platform's tools, or into the installer's manifests."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from umbilical.cli.options import FILE
from umbilical.fault import BootstrapError, RenderError
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
@click.option("--platform", "platform_name", metavar="NAME", help="Platform name; default: from --dir.")
@click.option("--dir", "directory", type=_DIRECTORY, help="Install directory; gives platform, infra id and networks.")
@click.option("--infra-id", metavar="ID", help="Infra id of the cluster; default: from --dir.")
@click.option("--machine-network", "networks", metavar="CIDR", multiple=True, help="Network of the nodes; repeatable.")
@click.option(
    "--source", "sources", metavar="CIDR", multiple=True, help="Node address, instead of --machine-network; repeatable."
)
@click.option("--port", type=int, default=DEFAULT_PORT, show_default=True, help="TCP port of the server for agents.")
@click.option(
    "--release",
    metavar="4.NN",
    help="Release of the installer, which names and lifetimes of rules depend on; default: from --dir.",
)
@click.option(
    "-o",
    "--output",
    type=click.Choice([form.value for form in Form]),
    help="Output form; default: depends on the platform.",
)
@click.option("--close", "closing", is_flag=True, help="Write what removes the rule.")
@click.option("--apply", "applying", is_flag=True, help="Change the manifest in --dir instead of showing a diff.")
@click.option("--out", type=FILE, help="New file for the result; default: standard output.")
def render(**options: Any) -> int:
    """Write the firewall rule in a form the platform accepts.

    The rule lets agents reach the bootstrap machine, from the narrowest source that the platform can name.
    """
    install = _install_dir(options["directory"])
    platform = platform_of(_platform_name(options["platform_name"], install))
    request = _request(options, platform, install)
    if options["applying"] and (install is None or options["output"] not in (None, Form.CAPI.value)):
        raise click.UsageError("--apply changes a manifest: it needs --dir and no other output than -o capi")
    wanted = Form.CAPI.value if options["applying"] else options["output"]
    form = _form(wanted, platform, has_directory=install is not None)
    if install is not None and form is Form.CAPI:
        changes = {"closing": options["closing"], "applying": options["applying"], "out": options["out"]}
        _edit_manifest(install, _manifest_edit(install, platform, request), request, **changes)
    else:
        _put(rule_text(platform, request, form, closing=options["closing"]), options["out"])
    if not options["closing"]:
        _print_remarks(platform, request)
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
        raise click.UsageError("give --platform NAME or --dir INSTALL_DIR")
    return install.platform


def _request(options: dict[str, Any], platform: Platform, install: "InstallDir | None") -> RuleRequest:
    if options["sources"] and platform.names_nodes:
        why = f"{platform.name} selects nodes by {platform.source}, which is narrower than any network"
        raise unusable("source", options["sources"][0], why, "run the command without --source")
    # Clouds refuse the second of two equal rules.
    given = tuple(dict.fromkeys(parse_network(text) for text in options["sources"] or options["networks"]))
    release = None if options["release"] is None else parse_release(options["release"])
    infra_id, networks = options["infra_id"], given
    if install is not None:
        if release is None and install.release is not None:
            release = parse_release(install.release)
        infra_id = infra_id or install.infra_id
        networks = networks or install.machine_networks
    return RuleRequest(infra_id or "", options["port"], networks, release)


def _form(given: str | None, platform: Platform, *, has_directory: bool) -> Form:
    if given is not None:
        return Form(given)
    known = forms(platform)
    return Form.CAPI if has_directory and Form.CAPI in known else known[0]


def _manifest_edit(install: "InstallDir", platform: Platform, request: RuleRequest) -> ManifestEdit:
    try:
        return manifest_edit(platform, request)
    except RenderError as fault:
        other = next(form for form in forms(platform) if form is not Form.CAPI)
        remedy = f"umbilical firewall render --dir {install.path} -o {other.value}"
        raise RenderError(fault.code, fault.what, fault.why, remedy) from None


def _edit_manifest(
    install: "InstallDir", edit: ManifestEdit, request: RuleRequest, *, closing: bool, applying: bool, out: Path | None
) -> None:
    from umbilical.firewall.forms.capi import closed, opened

    path = install.manifests / edit.file
    before = _manifest_text(install, path)
    after = closed(before, edit) if closing else opened(before, edit)
    if after == before:
        state = "has no rule of ours" if closing else f"already allows TCP {request.port}"
        click.echo(f"nothing to do: {path} {state}", err=True)
    elif applying:
        _replace(path, after)
        click.echo(f"changed {path}; next: openshift-install create ignition-configs --dir {install.path}", err=True)
    else:
        _put(_difference(path, before, after), out)


def _manifest_text(install: "InstallDir", path: Path) -> str:
    if install.has_ignition_configs:
        raise BootstrapError(
            "UMB163",
            f"{path} was not changed: it is too late",
            "`create ignition-configs` has run, and the installer does not read the manifests after it",
            "open the port with -o cli while the installation runs, or start again at `create manifests`",
        )
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        why = f"{getattr(error, 'strerror', None) or error}; installers that use Terraform do not write it"
        remedy = f"openshift-install create manifests --dir {install.path}; or open the port with -o cli"
        raise BootstrapError("UMB164", f"could not read {path}", why, remedy) from None


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


def _print_remarks(platform: Platform, request: RuleRequest) -> None:
    if request.release is not None and request.release >= NATIVE_SINCE:
        click.echo(f"note: in {request.release} the rule is created by {platform.made_by}", err=True)
    for remark in platform.remarks:
        click.echo(f"note: {remark}", err=True)
