#!/usr/bin/env bash
# The Konnectivity tunnel of the bootstrap control plane. bootkube.sh sources this file and calls its three functions
# in /opt/openshift, under `set -euoE pipefail`, after release-image.sh and the service record's functions.
# A step that fails ends the script; systemd restarts it, and the .done files skip finished steps. Every file is
# written under a temporary name and then renamed, so that the script can be killed at any line and run again.

#@if FINDS_ADDRESS
# Print the addresses that agents could dial: interface, address and prefix length, one per line.
_umbilical_candidates() {
    local network
    for network in @NETWORKS@; do
        # Temporary and deprecated addresses change: they must not go into a certificate.
        ip -@FAMILY@ -j addr show to "${network}" scope global | jq -r '
            .[] | .ifname as $interface | .addr_info[]?
            | select((.temporary or .deprecated or .tentative or .dadfailed) | not)
            | "\($interface) \(.local)/\(.prefixlen)"' || return 1
    done | sort -u
}

# Print the source address for packets to $1; nothing without a route. `ip route get` sends no packet. Type `local`
# means that $1 is this machine itself: such an answer does not show a route.
_umbilical_route_source() {
    local answer
    if answer=$(ip -@FAMILY@ -j route get "$1" 2>/dev/null); then
        jq -r '.[0] | select(.type != "local") | .prefsrc // empty' <<<"${answer}"
    fi
}

# Print the address and, after a blank, where it comes from. A floating address (of keepalived) is also a candidate, but
# no route has it as its source.
_umbilical_find_address() {
    local candidates target source count shown
    candidates=$(_umbilical_candidates) || return 1
    for target in @TARGETS@; do
        source=$(_umbilical_route_source "${target}") || return 1
        if [ -n "${source}" ] && grep -qF " ${source}/" <<<"${candidates}"; then
            echo "${source} source address of the route to ${target}"
            return 0
        fi
    done
    count=$(grep -c . <<<"${candidates}") || true
    if [ "${count}" -eq 1 ]; then
        source=${candidates#* }
        echo "${source%/*} the only IPv@FAMILY@ address in @NETWORKS@"
        return 0
    fi
    shown=${candidates//$'\n'/, }
    {
        echo "UMB112 could not find the bootstrap node IP"
        echo "  why: ${count} IPv@FAMILY@ addresses are candidates, and no route selects one: ${shown:-none in @NETWORKS@}"
        echo "  next: patch again with --node-ip ADDRESS, or give this machine a default route"
    } >&2
    return 1
}

# The certificates contain the address. If the machine no longer has it, certificates and pod are created again, unless
# the agents' manifests were already written: the cluster keeps the first ones, whatever this script writes later.
_umbilical_check_address() {
    local address count
    if [ ! -f konnectivity-certs.done ]; then
        return 0
    fi
    address=$(cat @NODE_IP_FILE@)
    count=$(ip -@FAMILY@ -j addr show to "${address}" | jq '[.[] | .addr_info[]?] | length')
    if [ "${count}" -gt 0 ]; then
        return 0
    fi
    if [ -f konnectivity-agent-manifest.done ]; then
        echo "warning: ${address} is no longer on this machine, but agents still dial it" >&2
    else
        # In this order: after a crash in between the next run comes here again.
        rm -f konnectivity-server-bootstrap.done
        rm -f konnectivity-certs.done
    fi
}

#@end
_umbilical_write_address() {
    mkdir -p @STATE_DIRECTORY@
    echo "$1" >@NODE_IP_FILE@.new
    mv -fT @NODE_IP_FILE@.new @NODE_IP_FILE@
}

#@if ASKS_FOR_IMAGE
# For an unknown name image_for fails or prints nothing.
_umbilical_check_image() {
    if [ -z "$1" ]; then
        echo "UMB116 found no image for the tunnel" >&2
        echo "  why: the release payload has no image @IMAGE_IN_PAYLOAD@" >&2
        echo "  next: patch again with --image REFERENCE" >&2
        return 1
    fi
}

#@end
# Fill the placeholders of $1 into $2, then rename it to $3. sed reads the values from standard input: other processes
# can read arguments, and one value is a key.
_umbilical_fill() {
    (
        umask 077
        sed --file=- "$1" >"$2" <<EOF
s|\${KONNECTIVITY_IMAGE}|${KONNECTIVITY_IMAGE:-}|g
s|\${BOOTSTRAP_NODE_IP}|${BOOTSTRAP_NODE_IP:-}|g
s|\${SERVER_CERT_FINGERPRINT}|${SERVER_CERT_FINGERPRINT:-}|g
s|\${AGENT_CERT}|${AGENT_CERT:-}|g
s|\${AGENT_KEY}|${AGENT_KEY:-}|g
s|\${CA_CERT}|${CA_CERT:-}|g
EOF
    )
    mv -fT "$2" "$3"
}

@SETUP_FUNCTION@() {
    local BOOTSTRAP_NODE_IP KONNECTIVITY_IMAGE SERVER_CERT_FINGERPRINT

#@if FINDS_ADDRESS
    _umbilical_check_address

#@end
    if [ ! -f konnectivity-certs.done ]; then
        record_service_stage_start "konnectivity-certs"
#@if FINDS_ADDRESS
        BOOTSTRAP_NODE_IP=$(_umbilical_find_address)
        echo "Detected bootstrap node IP: ${BOOTSTRAP_NODE_IP%% *} (${BOOTSTRAP_NODE_IP#* })"
        BOOTSTRAP_NODE_IP=${BOOTSTRAP_NODE_IP%% *}
#@else
        BOOTSTRAP_NODE_IP='@NODE_IP@'
        echo "Using bootstrap node IP: ${BOOTSTRAP_NODE_IP} (given with the patch, not detected)"
#@end
        _umbilical_write_address "${BOOTSTRAP_NODE_IP}"
#@if MAKES_CERTIFICATES
        @CERTIFICATE_SCRIPT@ "${BOOTSTRAP_NODE_IP}" @PKI_DIRECTORY@ @CERTIFICATE_HOURS@
#@end
        touch konnectivity-certs.done
        record_service_stage_success
    fi

    if [ ! -f konnectivity-server-bootstrap.done ]; then
        record_service_stage_start "konnectivity-server-bootstrap"
#@if ASKS_FOR_IMAGE
        KONNECTIVITY_IMAGE=$(image_for @IMAGE_IN_PAYLOAD@)
        _umbilical_check_image "${KONNECTIVITY_IMAGE}"
#@else
        KONNECTIVITY_IMAGE='@IMAGE@'
#@end
        SERVER_CERT_FINGERPRINT=$(sha256sum <@PKI_DIRECTORY@/server/tls.crt)
        SERVER_CERT_FINGERPRINT="sha256-${SERVER_CERT_FINGERPRINT%% *}"
        mkdir -p @STATIC_POD_DIRECTORY@
        # The kubelet ignores files whose names begin with a dot.
        _umbilical_fill @SERVER_POD@ @STATIC_POD_DIRECTORY@/.@STATIC_POD_FILE@ @STATIC_POD_DIRECTORY@/@STATIC_POD_FILE@
        touch konnectivity-server-bootstrap.done
        record_service_stage_success
    fi
}

@MANIFESTS_FUNCTION@() {
    local BOOTSTRAP_NODE_IP KONNECTIVITY_IMAGE AGENT_CERT AGENT_KEY CA_CERT scratch=@STATE_DIRECTORY@/.manifest

    if [ ! -f konnectivity-agent-manifest.done ]; then
        record_service_stage_start "konnectivity-agent-manifest"
#@if ASKS_FOR_IMAGE
        KONNECTIVITY_IMAGE=$(image_for @IMAGE_IN_PAYLOAD@)
        _umbilical_check_image "${KONNECTIVITY_IMAGE}"
#@else
        KONNECTIVITY_IMAGE='@IMAGE@'
#@end
        BOOTSTRAP_NODE_IP=$(cat @NODE_IP_FILE@)
#@if MAKES_CERTIFICATES
        AGENT_CERT=$(base64 -w0 @PKI_DIRECTORY@/agent/tls.crt)
        AGENT_KEY=$(base64 -w0 @PKI_DIRECTORY@/agent/tls.key)
        CA_CERT=$(base64 -w0 @PKI_DIRECTORY@/agent/ca.crt)
#@end
#@if OWNS_NAMESPACE
        _umbilical_fill @NAMESPACE_FILE@ "${scratch}" manifests/konnectivity-namespace.yaml
#@end
        _umbilical_fill @AGENT_SECRET_FILE@ "${scratch}" manifests/konnectivity-agent-certs.yaml
        _umbilical_fill @AGENT_DAEMON_SET_FILE@ "${scratch}" manifests/konnectivity-agent-daemonset.yaml
        touch konnectivity-agent-manifest.done
        record_service_stage_success
    fi
}

# Requests the deletion without waiting: an unreachable webhook can delay the deletion of a namespace for ever.
_umbilical_delete() {
    timeout 60 oc delete "$@" --kubeconfig=/opt/openshift/auth/kubeconfig \
        --ignore-not-found=true --wait=false --request-timeout=20s
}

_umbilical_delete_objects() {
#@if OWNS_NAMESPACE
    _umbilical_delete namespace @NAMESPACE@
#@else
    # Agents first: they need the certificate in the Secret.
    _umbilical_delete daemonset @AGENT_NAME@ --namespace=@NAMESPACE@ \
        && _umbilical_delete secret @AGENT_SECRET@ --namespace=@NAMESPACE@
#@end
}

@CLEANUP_FUNCTION@() {
    local tries=5 deleted=no

    if [ ! -f konnectivity-cleanup.done ]; then
        record_service_stage_start "konnectivity-cleanup"
        while [ "${deleted}" = no ] && [ "${tries}" -gt 0 ]; do
            if _umbilical_delete_objects; then
                deleted=yes
            else
                tries=$((tries - 1))
                sleep 2
            fi
        done
        rm -f @STATIC_POD_DIRECTORY@/@STATIC_POD_FILE@ @SOCKET@
        rm -rf @PKI_DIRECTORY@
        if [ "${deleted}" = yes ]; then
            touch konnectivity-cleanup.done
            record_service_stage_success
        else
            # The installation is complete and must not fail here: the objects can be deleted later.
            echo "warning: the tunnel's objects are still in the cluster: umbilical bootstrap teardown" >&2
            record_service_stage_failure
        fi
    fi
}
