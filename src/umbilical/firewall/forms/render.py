"""Renders a platform's rule in one form, or explains why there is no such form."""

import json
from collections.abc import Callable
from enum import Enum
from typing import Any, Final

from umbilical.fault import RenderError
from umbilical.firewall.forms import capi, texts
from umbilical.firewall.forms.texts import terraform_text
from umbilical.firewall.platforms.platform import FirewallRule, ManifestEdit, Platform
from umbilical.firewall.platforms.request import RuleRequest

API_VERSION: Final = "umbilical.dev/v1alpha1"


class Form(Enum):
    CLI = "cli"
    TERRAFORM = "terraform"
    CAPI = "capi"
    NFTABLES = "nftables"
    FIREWALLD = "firewalld"
    JSON = "json"


def forms(platform: Platform) -> tuple[Form, ...]:
    """List the forms of a platform's rule."""
    has = {
        Form.CLI: platform.commands is not None,
        Form.TERRAFORM: platform.blocks is not None,
        Form.CAPI: platform.edit is not None,
        Form.NFTABLES: platform.is_host_filtered,
        Form.FIREWALLD: platform.is_host_filtered,
        Form.JSON: True,
    }
    return tuple(form for form in Form if has[form])


def render(platform: Platform, request: RuleRequest, form: Form, *, closing: bool = False) -> str:
    """Render the rule, or with `closing` its removal. Raises RenderError: no such form, or a value is missing."""
    if form not in forms(platform):
        raise _no_form(platform, form, platform.why_no_edit if form is Form.CAPI else _why_not(platform))
    return _RENDERERS[form](platform, request, closing)


def manifest_edit(platform: Platform, request: RuleRequest) -> ManifestEdit:
    """Return the edit of a Cluster API manifest. Raises RenderError: platform or release have no manifest."""
    if platform.edit is None:
        raise _no_form(platform, Form.CAPI, platform.why_no_edit)
    since = platform.edit_since
    if request.release is not None and since is not None and request.release < since:
        why = f"its installer uses Terraform before {since}: create the rule while the installation runs"
        raise _no_form(platform, Form.CAPI, why)
    return platform.edit(request)


def as_value(platform: Platform, request: RuleRequest) -> dict[str, Any]:
    return {
        "apiVersion": API_VERSION,
        "kind": "FirewallRules",
        "platform": platform.name,
        "infraId": request.infra_id,
        "rules": [_rule_value(rule) for rule in platform.rules(request)],
        **_facts(platform),
    }


def describe(platform: Platform) -> dict[str, Any]:
    """Return the facts of a platform that do not depend on a cluster."""
    return {
        "platform": platform.name,
        "rule": platform.rule,
        "source": platform.source,
        "target": platform.target,
        **_facts(platform),
        "forms": [form.value for form in forms(platform)],
    }


def _facts(platform: Platform) -> dict[str, Any]:
    removals = [{"releases": each.releases, "by": each.by.value, "remark": each.remark} for each in platform.removals]
    return {
        "madeBy": platform.made_by,
        "removals": removals,
        "leaks": platform.leaks,
        "remarks": list(platform.remarks),
    }


def _rule_value(rule: FirewallRule) -> dict[str, Any]:
    places = [{"kind": place.kind.value, "value": place.value} for place in rule.sources]
    value = {
        "name": rule.name,
        "protocol": rule.protocol,
        "port": rule.port,
        "sources": places,
        "target": {"kind": rule.target.kind.value, "value": rule.target.value},
        "description": rule.description,
    }
    return value if rule.priority is None else {**value, "priority": rule.priority}


def _cli(platform: Platform, request: RuleRequest, closing: bool) -> str:
    assert platform.commands is not None
    return texts.script(platform.commands(request), _comments(platform, request, closing), closing=closing)


def _terraform(platform: Platform, request: RuleRequest, closing: bool) -> str:
    assert platform.blocks is not None
    if closing:
        why = "Terraform removes what is no longer in its configuration"
        raise RenderError("UMB161", "-o terraform has no --close", why, "run `terraform destroy`, or delete the file")
    head = "".join(f"# {line}\n" for line in _comments(platform, request, closing))
    return f"{head}\n{terraform_text(platform.blocks(request))}"


def _capi(platform: Platform, request: RuleRequest, closing: bool) -> str:
    if closing:
        why = "--close removes the rule from a manifest, and none was given"
        raise RenderError("UMB161", "-o capi --close needs an install directory", why, "add --dir INSTALL_DIR")
    return capi.snippet(manifest_edit(platform, request))


def _nftables(platform: Platform, request: RuleRequest, closing: bool) -> str:
    comments = _comments(platform, request, closing)
    return texts.teardown(comments) if closing else texts.ruleset(platform.rules(request), comments)


def _firewalld(platform: Platform, request: RuleRequest, closing: bool) -> str:
    return texts.firewalld_script(platform.rules(request), _comments(platform, request, closing), closing=closing)


def _json(platform: Platform, request: RuleRequest, closing: bool) -> str:
    if closing:
        why = "JSON lists rules, not actions"
        raise RenderError("UMB161", "-o json has no --close", why, "use -o cli, nftables or firewalld with --close")
    return json.dumps(as_value(platform, request), indent=2) + "\n"


_RENDERERS: Final[dict[Form, Callable[[Platform, RuleRequest, bool], str]]] = {
    Form.CLI: _cli,
    Form.TERRAFORM: _terraform,
    Form.CAPI: _capi,
    Form.NFTABLES: _nftables,
    Form.FIREWALLD: _firewalld,
    Form.JSON: _json,
}


def _comments(platform: Platform, request: RuleRequest, closing: bool) -> tuple[str, ...]:
    if closing:
        return (f"{platform.name}: close TCP {request.port} to the bootstrap machine",)
    rule = f"{platform.name}: TCP {request.port} from {platform.source} to {platform.target}"
    hint = "Remove it after `openshift-install wait-for bootstrap-complete`"
    return (rule.replace("<infra-id>", request.infra_id), hint)


def _why_not(platform: Platform) -> str:
    if platform.is_host_filtered:
        return "the platform has no cloud tool or provider for such rules"
    return "the cloud filters before the host: RHCOS itself allows everything"


def _no_form(platform: Platform, form: Form, why: str) -> RenderError:
    known = ", ".join(each.value for each in forms(platform) if each is not form)
    return RenderError("UMB161", f"{platform.name} has no form {form.value}", why, f"use -o with one of: {known}")
