#!/usr/bin/env bash
# The Konnectivity tunnel of the bootstrap control plane. bootkube.sh sources this file and calls its three functions
# in /opt/openshift, under `set -euoE pipefail`, with those of release-image.sh and of the service record at hand.
# A stage that fails ends the script; systemd starts it again, and the .done files skip what is finished. So every
# file is made beside its place and then renamed, and being killed at any line does no harm.

#@if FINDS_ADDRESS
# The addresses that agents could dial: interface, address and prefix length, one per line.
_umbilical_candidates() {
    local network
    for network in @NETWORKS@; do
        # Privacy addresses change, and deprecated ones go: neither belongs into a certificate.
        ip -@FAMILY@ -j addr show to "${network}" scope global | jq -r '
            .[] | .ifname as $interface | .addr_info[]?
            | select((.temporary or .deprecated or .tentative or .dadfailed) | not)
            | "\($interface) \(.local)/\(.prefixlen)"' || return 1
    done | sort -u
}

# The address from which this machine would send to another one; nothing where no route leads there. Asking sends
# nothing. An answer of type local means that the other one is ourselves, which says nothing about routes.
_umbilical_route_source() {
    local answer
    if answer=$(ip -@FAMILY@ -j route get "$1" 2>/dev/null); then
        jq -r '.[0] | select(.type != "local") | .prefsrc // empty' <<<"${answer}"
    fi
}

# A floating address (keepalived's) is a candidate as good as any, but no route has it as its source.
_umbilical_find_address() {
    local candidates target source count shown
    candidates=$(_umbilical_candidates) || return 1
    for target in @TARGETS@; do
        source=$(_umbilical_route_source "${target}") || return 1
        if [ -n "${source}" ] && grep -qF " ${source}/" <<<"${candidates}"; then
            echo "${source}"
            return 0
        fi
    done
    count=$(grep -c . <<<"${candidates}") || true
    if [ "${count}" -eq 1 ]; then
        source=${candidates#* }
        echo "${source%/*}"
        return 0
    fi
    shown=${candidates//$'\n'/, }
    {
        echo "UMB112 cannot find the bootstrap node IP"
        echo "  why: ${count} IPv@FAMILY@ addresses could be it, and no route tells which: ${shown:-none in @NETWORKS@}"
        echo "  next: patch again with --node-ip ADDRESS, or give this machine a default route"
    } >&2
    return 1
}

# Certificates are bound to the address. Where that has left the machine since, they and the pod are made again, as
# long as no agent can have been told of it; after that the cluster keeps the first manifests, whatever we write.
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
        echo "warning: ${address} has left this machine, and agents go on dialling it" >&2
    else
        # In this order: a crash in between leaves what brings us here again.
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
# For a name that the payload does not know, image_for fails; printing nothing is one more way to have no image.
_umbilical_check_image() {
    if [ -z "$1" ]; then
        echo "UMB116 there is no image for the tunnel" >&2
        echo "  why: the release payload names none for @IMAGE_IN_PAYLOAD@" >&2
        echo "  next: patch again with --image REFERENCE" >&2
        return 1
    fi
}

#@end
# Fill the placeholders of $1 into $2, and give that the name $3. The values reach sed by its standard input: other
# processes can read arguments, and one of them is a key.
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
#@else
        BOOTSTRAP_NODE_IP='@NODE_IP@'
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
        # The kubelet passes over files whose names begin with a dot.
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

# Objects are asked to go and not waited for: a namespace can take as long as some unreachable webhook wants.
_umbilical_delete() {
    timeout 60 oc delete "$@" --kubeconfig=/opt/openshift/auth/kubeconfig \
        --ignore-not-found=true --wait=false --request-timeout=20s
}

_umbilical_delete_objects() {
#@if OWNS_NAMESPACE
    _umbilical_delete namespace @NAMESPACE@
#@else
    # Agents first: without their certificate they would only knock in vain.
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
            # The installation is done but for this, and must not fail by it: the objects can be deleted later.
            echo "warning: the tunnel's objects are still in the cluster: umbilical bootstrap teardown" >&2
            record_service_stage_failure
        fi
    fi
}
