#!/usr/bin/env bash
# Starts the bootstrap control plane, through which all objects of the cluster are then applied from outside.
# systemd restarts this script when it fails, so every step first checks whether it is done.
set -euo pipefail

say() {
    echo "bootkube: $*"
}

# Usage: wait_for SECONDS WHAT COMMAND... Runs the command every second until it succeeds, and reports every 30 s.
wait_for() {
    local end=$((SECONDS + $1)) told=${SECONDS} what=$2
    say "waiting for ${what}, up to $1 s"
    shift 2
    until "$@"; do
        if ((SECONDS >= end)); then
            say "timed out waiting for ${what}" >&2
            return 1
        fi
        if ((SECONDS - told >= 30)); then
            told=${SECONDS}
            say "still waiting for ${what}"
        fi
        sleep 1
    done
    say "${what}: yes"
}

# The answer must be "ok": while it starts, the API returns 500 with a list of failed checks.
api_is_ready() {
    local answer
    answer=$(curl --silent --max-time 10 --noproxy '*' --cacert @SERVER_CA@ https://localhost:6443/readyz) || return 1
    [ "${answer}" = ok ]
}

#@if HAS_TUNNEL
# The pod of the tunnel's server starts when this directory exists: the kubelet must mount it. The certificate script
# creates it in one step.
make_tunnel_certificates() {
    if [ -d @TUNNEL_PKI@ ]; then
        return 0
    fi
    say "making the tunnel's certificates for @ADDRESS@"
    mkdir -p "$(dirname @TUNNEL_PKI@)"
    @CERTIFICATE_SCRIPT@ @ADDRESS@ @TUNNEL_PKI@ @CERTIFICATE_HOURS@
}

make_tunnel_certificates
#@end
wait_for @API_SECONDS@ "kube-apiserver to be ready" api_is_ready
#@if IS_OPENSHIFT

ask() {
    oc --kubeconfig=@KUBECONFIG@ --request-timeout=20s "$@"
}

# ClusterVersion is the last object that cluster-version-operator needs.
cluster_version_exists() {
    ask get clusterversion version >/dev/null 2>&1
}

# Without a status for its own version the operator uses other feature gates than the cluster, and restarts.
feature_gates_are_known() {
    local versions
    versions=$(ask get featuregate cluster --output='jsonpath={.status.featureGates[*].version}' 2>/dev/null) || return 1
    [[ " ${versions} " == *" @VERSION@ "* ]]
}

crds_are_established() {
    ask wait crd --all --for=condition=Established --timeout=60s >/dev/null 2>&1
}

if [ -f @LATE_MANIFESTS@/@CVO_POD@ ]; then
    wait_for @OBJECTS_SECONDS@ "ClusterVersion version" cluster_version_exists
    wait_for @OBJECTS_SECONDS@ "FeatureGate cluster with a status for @VERSION@" feature_gates_are_known
    wait_for @OBJECTS_SECONDS@ "every CRD to be established" crds_are_established
    say "starting @CVO_POD@"
    mv -fT @LATE_MANIFESTS@/@CVO_POD@ @MANIFESTS@/@CVO_POD@
fi
#@end

touch @DONE@
say "done: the cluster's objects can be applied, and masters can be booted"
