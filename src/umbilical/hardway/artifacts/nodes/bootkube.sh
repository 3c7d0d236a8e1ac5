#!/usr/bin/env bash
# Brings the bootstrap control plane to where it can be worked with from outside: every object of the cluster is
# applied from there. systemd starts this again when it fails, so every step looks first whether it is done.
set -euo pipefail

say() {
    echo "bootkube: $*"
}

# Try a command every second for so many seconds, and say now and then what is waited for.
wait_for() {
    local end=$((SECONDS + $1)) told=${SECONDS} what=$2
    say "waiting for ${what}, up to $1 s"
    shift 2
    until "$@"; do
        if ((SECONDS >= end)); then
            say "gave up waiting for ${what}" >&2
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

# Any answer is not enough: while it starts, the API answers 500 with a list of what is missing.
api_is_ready() {
    local answer
    answer=$(curl --silent --max-time 10 --noproxy '*' --cacert @SERVER_CA@ https://localhost:6443/readyz) || return 1
    [ "${answer}" = ok ]
}

#@if HAS_TUNNEL
# The pod of the tunnel's server waits for them: its kubelet mounts the directory when there is one. The script puts
# it in place in one piece.
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

# It is applied last of all that cluster-version-operator needs.
cluster_version_exists() {
    ask get clusterversion version >/dev/null 2>&1
}

# Without a status for its own version the operator takes other gates than the cluster, and restarts.
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
