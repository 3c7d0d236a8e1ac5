"""A made-up release directory with the shape of a real one: what `oc adm release extract --to=DIR` would leave behind.

Names, annotations and counts are as in a release of the line 4.18; schemas and values are small and our own.
"""

import json
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final

import yaml
from tests.support import release_names

from umbilical.hardway.artifacts.inputs import ReleasePayload
from umbilical.hardway.artifacts.release import INFO, read_release

Object = dict[str, Any]
PROFILES: Final = ("ibm-cloud-managed", "self-managed-high-availability")
PREVIEWS: Final = ("CustomNoUpgrade", "DevPreviewNoUpgrade", "TechPreviewNoUpgrade")
CONFIG: Final = "config.openshift.io"
REQUIRED: Final = (
    *("clusterresourcequotas.quota.openshift.io", "proxies.config.openshift.io"),
    *("rolebindingrestrictions.authorization.openshift.io", "securitycontextconstraints.security.openshift.io"),
    "rangeallocations.security.internal.openshift.io",
    *(f"{plural}.{CONFIG}" for plural in ("apiservers", "authentications", "consoles", "dnses", "featuregates")),
    *(f"{plural}.{CONFIG}" for plural in ("imagecontentpolicies", "imagedigestmirrorsets", "images")),
    "imagecontentsourcepolicies.operator.openshift.io",
    *(f"{plural}.{CONFIG}" for plural in ("imagetagmirrorsets", "infrastructures", "ingresses", "networks", "nodes")),
    *(f"{plural}.{CONFIG}" for plural in ("oauths", "projects", "schedulers")),
)
LATER: Final = (
    *(f"{plural}.{CONFIG}" for plural in ("builds", "operatorhubs")),
    *(
        f"{plural}.operator.openshift.io"
        for plural in (
            *("authentications", "cloudcredentials", "clustercsidrivers", "configs", "consoles"),
            *(
                "csisnapshotcontrollers",
                "dnses",
                "etcds",
                "ingresscontrollers",
                "insightsoperators",
                "kubeapiservers",
                "kubecontrollermanagers",
            ),
            *("kubeschedulers", "openshiftapiservers", "storages"),
        )
    ),
    *("machineconfigpools.machineconfiguration.openshift.io", "controllerconfigs.machineconfiguration.openshift.io"),
    "helmchartrepositories.helm.openshift.io",
)
"""For the same clusters, but the version operator brings them."""
ELSEWHERE: Final = (
    *(f"{plural}.{CONFIG}" for plural in ("backups", "clusterimagepolicies", "imagepolicies", "insightsdatagathers")),
    *("etcdbackups.operator.openshift.io", "machineconfignodes.machineconfiguration.openshift.io"),
)
"""Technology previews only."""
SEVERAL: Final = (*REQUIRED[3:19:2], *LATER[4:20:2])
"""Those with one variant for each feature set."""
KINDS: Final[Mapping[str, str]] = {
    "dnses": "DNS",
    "featuregates": "FeatureGate",
    "infrastructures": "Infrastructure",
    "ingresses": "Ingress",
    "networks": "Network",
    "proxies": "Proxy",
    "schedulers": "Scheduler",
    "securitycontextconstraints": "SecurityContextConstraints",
    "clusterversions": "ClusterVersion",
    "clusteroperators": "ClusterOperator",
}
CLUSTER_OPERATORS: Final = (
    *("authentication", "baremetal", "cloud-controller-manager", "cloud-credential", "cluster-autoscaler"),
    *("config-operator", "console", "control-plane-machine-set", "csi-snapshot-controller", "dns", "etcd"),
    *("image-registry", "ingress", "insights", "kube-apiserver", "kube-controller-manager", "kube-scheduler"),
    *("kube-storage-version-migrator", "machine-api", "machine-approver", "machine-config", "marketplace"),
    *("monitoring", "network", "node-tuning", "openshift-apiserver", "openshift-controller-manager"),
    *("openshift-samples", "operator-lifecycle-manager", "operator-lifecycle-manager-catalog"),
    *("operator-lifecycle-manager-packageserver", "service-ca", "storage"),
)
CONSTRAINTS: Final = (
    *("anyuid", "hostaccess", "hostmount-anyuid", "hostnetwork", "hostnetwork-v2", "nonroot", "nonroot-v2"),
    *("privileged", "restricted", "restricted-v2"),
)
TEXT: Final[Object] = {"type": "string"}
FLAG: Final[Object] = {"type": "boolean"}


def listed(item: Object) -> Object:
    return {"type": "array", "items": item}


def shaped(**properties: Any) -> Object:
    return {"type": "object", "properties": properties}


def choice(*values: str) -> Object:
    return {"type": "string", "enum": list(values)}


OPEN: Final[Object] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
TOPOLOGY: Final = choice("HighlyAvailable", "SingleReplica")
CONTROL_PLANE_TOPOLOGY: Final = choice("HighlyAvailable", "SingleReplica", "DualReplica", "External")
POD_NETWORK: Final = listed(shaped(cidr=TEXT, hostPrefix={"type": "integer", "minimum": 0}))
GATES: Final = listed(shaped(name={"type": "string", "pattern": "^[A-Za-z0-9-_]+$"}))
SCHEMAS: Final[Mapping[str, Object]] = {
    "dnses.config.openshift.io": shaped(spec=shaped(baseDomain=TEXT), status=OPEN),
    "featuregates.config.openshift.io": shaped(
        spec=shaped(featureSet=choice("", *PREVIEWS)),
        status=shaped(featureGates=listed(shaped(version=TEXT, enabled=GATES, disabled=GATES))),
    ),
    "infrastructures.config.openshift.io": shaped(
        spec=shaped(platformSpec=shaped(type=TEXT), cloudConfig=shaped(name=TEXT, key=TEXT)),
        status=shaped(
            infrastructureName=TEXT,
            apiServerURL=TEXT,
            apiServerInternalURI=TEXT,
            etcdDiscoveryDomain=TEXT,
            platform=choice("", "None", "AWS"),
            platformStatus=shaped(type=choice("None", "AWS")),
            controlPlaneTopology=CONTROL_PLANE_TOPOLOGY,
            infrastructureTopology=TOPOLOGY,
            cpuPartitioning=choice("None", "AllNodes"),
        ),
    ),
    "ingresses.config.openshift.io": shaped(spec=shaped(domain=TEXT), status=OPEN),
    "networks.config.openshift.io": shaped(
        spec=shaped(
            clusterNetwork=POD_NETWORK,
            serviceNetwork=listed(TEXT),
            networkType=TEXT,
            externalIP=shaped(policy=shaped(allowedCIDRs=listed(TEXT))),
        ),
        status=OPEN,
    ),
    "networks.operator.openshift.io": shaped(
        spec=shaped(
            clusterNetwork=POD_NETWORK,
            serviceNetwork=listed(TEXT),
            defaultNetwork=shaped(type=TEXT),
            managementState=choice("Managed", "Unmanaged", "Removed"),
        ),
        status=OPEN,
    ),
    "proxies.config.openshift.io": shaped(spec=shaped(httpProxy=TEXT, trustedCA=shaped(name=TEXT)), status=OPEN),
    "schedulers.config.openshift.io": shaped(
        spec=shaped(mastersSchedulable=FLAG, policy=shaped(name=TEXT)), status=OPEN
    ),
    "clusterversions.config.openshift.io": shaped(
        spec=shaped(channel=TEXT, clusterID=TEXT, desiredUpdate=shaped(version=TEXT, image=TEXT)), status=OPEN
    ),
    "clusteroperators.config.openshift.io": shaped(spec=OPEN, status=OPEN),
}


def crd(name: str, *, profiles: tuple[str, ...] = PROFILES, feature_set: str = "", required: bool = False) -> Object:
    plural, _, group = name.partition(".")
    annotations = {f"include.release.openshift.io/{profile}": "true" for profile in profiles}
    annotations |= {"release.openshift.io/feature-set": feature_set} if feature_set else {}
    annotations |= {"release.openshift.io/bootstrap-required": "true"} if required else {}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": name, "annotations": annotations},
        "spec": {
            "group": group,
            "names": _names(plural),
            "scope": "Cluster",
            "versions": [_version(name)],
        },
    }


def _names(plural: str) -> Object:
    kind = KINDS.get(plural, plural.capitalize().removesuffix("s"))
    return {"kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": kind.lower()}


def _version(name: str) -> Object:
    schema = {"type": "object", **SCHEMAS.get(name, OPEN)}
    if "properties" in schema:
        base = {"apiVersion": TEXT, "kind": TEXT, "metadata": {"type": "object"}}
        schema = {**schema, "properties": {**base, **schema["properties"]}}
    # Constraints have neither spec nor status.
    subresources: Object = (
        {} if name.startswith(("securitycontext", "rangealloc")) else {"subresources": {"status": {}}}
    )
    return {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}, **subresources}


def _variants(prefix: str, name: str, required: bool) -> Iterator[tuple[str, Object]]:
    """A definition of cluster-config-api, in as many files as it has feature sets."""
    stem = f"{prefix}_{name.partition('.')[0]}"
    if name in ELSEWHERE:
        yield f"{stem}-TechPreviewNoUpgrade.crd.yaml", crd(name, feature_set="TechPreviewNoUpgrade")
    elif name in SEVERAL:
        yield f"{stem}-Default.crd.yaml", crd(name, feature_set="Default", required=required)
        for one in PREVIEWS if name not in SEVERAL[:2] else PREVIEWS[1:]:
            yield f"{stem}-{one}.crd.yaml", crd(name, feature_set=one, required=required)
    else:
        yield f"{stem}.crd.yaml", crd(name, required=required)


def api_definitions() -> dict[str, Object]:
    """All that cluster-config-api brings: 94 files of 48 names."""
    found: dict[str, Object] = {}
    for name in (*REQUIRED, *LATER, *ELSEWHERE):
        group = name.partition(".")[2].removesuffix(".openshift.io")
        found |= dict(_variants(f"0000_10_{group}_01", name, name in REQUIRED))
    return found


def _other_definitions() -> Iterator[tuple[str, Object]]:
    version_operator = "0000_00_cluster-version-operator_01"
    yield f"{version_operator}_clusteroperators.crd.yaml", crd("clusteroperators.config.openshift.io")
    sets = ("Default", *PREVIEWS)
    for one in sets:
        file = f"{version_operator}_clusterversions-{one}.crd.yaml"
        yield file, crd("clusterversions.config.openshift.io", feature_set=one)
    for one in sets:
        yield f"0000_70_network_01_networks-{one}.crd.yaml", crd("networks.operator.openshift.io", feature_set=one)


def feature_gate(enabled: tuple[str, ...], disabled: tuple[str, ...], feature_set: str) -> Object:
    gates = {name: [{"name": one} for one in found] for name, found in (("disabled", disabled), ("enabled", enabled))}
    return {
        "apiVersion": "config.openshift.io/v1",
        "kind": "FeatureGate",
        "metadata": {"name": "cluster"},
        "spec": {"featureSet": feature_set} if feature_set else {},
        "status": {"featureGates": [{**gates, "version": ""}]},
    }


def _feature_gates() -> Iterator[tuple[str, Object]]:
    for profile in ("SelfManagedHA", "Hypershift"):
        for one in ("Default", *PREVIEWS):
            file = f"0000_50_cluster-config-api_featureGate-{profile}-{one}.yaml"
            enabled = ("BuildCSIVolumes", "CloudDualStackNodeIPs", "RouteExternalCertificate")
            disabled = ("EtcdBackendQuota", "ExampleNewFeature")
            if one == "Default":
                yield file, feature_gate(enabled, disabled, "")
            else:
                yield file, feature_gate((*enabled, *disabled), (), one)


def _included(value: Object) -> Object:
    annotations = {f"include.release.openshift.io/{profile}": "true" for profile in PROFILES}
    return {**value, "metadata": {**value["metadata"], "annotations": annotations}}


def _constraints() -> Iterator[tuple[str, Object]]:
    prefix = "0000_20_kube-apiserver-operator_00"
    for name in CONSTRAINTS:
        head = {"apiVersion": "security.openshift.io/v1", "kind": "SecurityContextConstraints"}
        yield f"{prefix}_scc-{name}.yaml", _included({**head, "metadata": {"name": name}, **_allowed(name)})
        rule = {
            "apiGroups": ["security.openshift.io"],
            "resources": ["securitycontextconstraints"],
            "resourceNames": [name],
            "verbs": ["use"],
        }
        head = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole"}
        metadata = {"name": f"system:openshift:scc:{name}"}
        yield f"{prefix}_cr-scc-{name}.yaml", _included({**head, "metadata": metadata, "rules": [rule]})
    yield f"{prefix}_crb-systemauthenticated-scc-restricted-v2.yaml", _included(_everybodys_constraint())


def _allowed(name: str) -> Object:
    """What a constraint says, in every field that the real definition asks for: some of them are null."""
    is_privileged = name == "privileged"
    is_on_host = is_privileged or name.startswith("host")
    strategies = {"type": "RunAsAny" if is_on_host else "MustRunAs"}
    flags = ("DirVolumePlugin", "IPC", "Network", "PID", "Ports")
    return {
        **{f"allowHost{flag}": is_on_host for flag in flags},
        "allowPrivilegedContainer": is_privileged,
        "allowedCapabilities": ["*"] if is_privileged else None,
        "defaultAddCapabilities": None,
        "fsGroup": strategies,
        "groups": [],
        "priority": 10 if name == "anyuid" else None,
        "readOnlyRootFilesystem": False,
        "requiredDropCapabilities": [] if is_privileged else ["ALL"],
        "runAsUser": {"type": "RunAsAny" if is_on_host else "MustRunAsRange"},
        "seLinuxContext": strategies,
        "supplementalGroups": {"type": "RunAsAny"},
        "users": [],
        "volumes": ["*"] if is_privileged else ["configMap", "emptyDir", "projected", "secret"],
    }


def _everybodys_constraint() -> Object:
    group = "rbac.authorization.k8s.io"
    return {
        "apiVersion": f"{group}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "system:openshift:scc:restricted-v2"},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "system:openshift:scc:restricted-v2"},
        "subjects": [{"apiGroup": group, "kind": "Group", "name": "system:authenticated"}],
    }


def _operators() -> Iterator[tuple[str, Object]]:
    for number, name in enumerate(CLUSTER_OPERATORS):
        head = {"apiVersion": "config.openshift.io/v1", "kind": "ClusterOperator", "metadata": {"name": name}}
        status = {"versions": [{"name": "operator", "version": release_names.VERSION}]}
        yield (
            f"0000_{20 + number // 3:02d}_{name}-operator_07_clusteroperator.yaml",
            _included({**head, "spec": {}, "status": status}),
        )


def image_references(images: Mapping[str, str]) -> Object:
    tags = [{"name": name, "from": {"kind": "DockerImage", "name": image}} for name, image in images.items()]
    return {
        "kind": "ImageStream",
        "apiVersion": "image.openshift.io/v1",
        "metadata": {"name": release_names.VERSION, "creationTimestamp": "2025-02-25T00:00:00Z"},
        "spec": {"lookupPolicy": {"local": False}, "tags": tags},
    }


@cache
def _made() -> tuple[tuple[str, bytes], ...]:
    objects = {**api_definitions(), **dict(_other_definitions()), **dict(_feature_gates())}
    objects |= {**dict(_constraints()), **dict(_operators())}
    files = {name: yaml.safe_dump(value, sort_keys=False).encode() for name, value in objects.items()}
    metadata = {"kind": "cincinnati-metadata-v0", "version": release_names.VERSION, "previous": []}
    files["release-metadata"] = json.dumps(metadata).encode()
    files["image-references"] = json.dumps(image_references(release_names.images()), indent=1).encode()
    files[INFO] = json.dumps({"image": release_names.RELEASE_IMAGE, "digest": release_names.DIGEST}).encode()
    return tuple(sorted(files.items()))


def release_files() -> dict[str, bytes]:
    """File name -> content, one's own copy."""
    return dict(_made())


@cache
def release_payload() -> ReleasePayload:
    return read_release(release_files())
