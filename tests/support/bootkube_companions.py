"""What lies beside bootkube.sh on a bootstrap node and a lab's node does not need, from the contract of each.

The library that asks for the API's names, and the built-in tunnel's own files.
"""

from typing import Final

from tests.support.bootkube_script import Native

# It brings the record, too: a service that sources both starts its record twice.
VERIFY_URLS: Final = r"""#!/usr/bin/env bash
# Asks whether the API's names resolve and answer; a failure is noted and stops nothing.
. /usr/local/bin/bootstrap-service-record.sh

lookup_url() {
    echo "looking up $1.cluster.example"
}

check_url() {
    echo "asking $1.cluster.example"
}
"""

NATIVE_LIBRARY: Final = r"""#!/usr/bin/env bash
# The built-in tunnel: a server before kube-apiserver comes, agents with the manifests, and the end of both.
konnectivity_setup() {
    if [ ! -f konnectivity-certs.done ]
    then
        record_service_stage_start "konnectivity-certs"
        BOOTSTRAP_NODE_IP=$(ROUTE_COMMAND | jq -r '.[0].prefsrc')
        export BOOTSTRAP_NODE_IP
        /usr/local/bin/konnectivity-certs.sh "${BOOTSTRAP_NODE_IP}"
        touch konnectivity-certs.done
        record_service_stage_success
    fi
    if [ ! -f konnectivity-server-bootstrap.done ]
    then
        record_service_stage_start "konnectivity-server-bootstrap"
        KONNECTIVITY_IMAGE=$(image_for apiserver-network-proxy)
        sed -e "s|\${KONNECTIVITY_IMAGE}|${KONNECTIVITY_IMAGE}|g" \
            /opt/openshift/konnectivity-server-pod.yaml > /etc/kubernetes/manifests/konnectivity-server-pod.yaml
        touch konnectivity-server-bootstrap.done
        record_service_stage_success
    fi
    :
}

konnectivity_manifests() {
    if [ ! -f konnectivity-agent-manifest.done ]
    then
        record_service_stage_start "konnectivity-agent-manifest"
        KONNECTIVITY_IMAGE=$(image_for apiserver-network-proxy)
        BOOTSTRAP_NODE_IP=$(ROUTE_COMMAND | jq -r '.[0].prefsrc')
        cp /opt/openshift/konnectivity-namespace.yaml manifests/konnectivity-namespace.yaml
        CERTS=/opt/openshift/tls/konnectivity
        sed -e "s|\${KONNECTIVITY_AGENT_CERT}|$(base64 -w0 "${CERTS}/agent.crt")|g" \
            -e "s|\${KONNECTIVITY_AGENT_KEY}|$(base64 -w0 "${CERTS}/agent.key")|g" \
            -e "s|\${KONNECTIVITY_CA_CERT}|$(base64 -w0 "${CERTS}/ca.crt")|g" \
            /opt/openshift/konnectivity-agent-certs-secret.yaml > manifests/konnectivity-agent-certs.yaml
        sed -e "s|\${KONNECTIVITY_IMAGE}|${KONNECTIVITY_IMAGE}|g" \
            -e "s|\${BOOTSTRAP_NODE_IP}|${BOOTSTRAP_NODE_IP}|g" \
            /opt/openshift/konnectivity-agent-daemonset.yaml > manifests/konnectivity-agent-daemonset.yaml
        touch konnectivity-agent-manifest.done
        record_service_stage_success
    fi
    :
}

konnectivity_cleanup() {
    if [ ! -f konnectivity-cleanup.done ]
    then
        record_service_stage_start "konnectivity-cleanup"
        oc delete namespace openshift-bootstrap-konnectivity --kubeconfig=/opt/openshift/auth/kubeconfig \
            --ignore-not-found=true --wait=false
        rm --force /etc/kubernetes/manifests/konnectivity-server-pod.yaml
        touch konnectivity-cleanup.done
        record_service_stage_success
    fi
    :
}
"""

NATIVE_LIBRARY_OFF: Final = """#!/usr/bin/env bash
# The built-in tunnel: a server before kube-apiserver comes, agents with the manifests, and the end of both.
konnectivity_setup() {
    :
}

konnectivity_manifests() {
    :
}

konnectivity_cleanup() {
    :
}
"""

NATIVE_CERTIFICATES: Final = r"""#!/usr/bin/env bash
# Makes a signer for one day and what it signs: konnectivity-certs.sh ADDRESS
set -euo pipefail
ADDRESS="${1:?an address is needed}"
mkdir --parents /opt/openshift/tls/konnectivity
cd /opt/openshift/tls/konnectivity
umask 0077
openssl req -x509 -newkey rsa:2048 -nodes -sha256 -days 1 -subj "/O=openshift/CN=konnectivity-signer" \
    -addext "basicConstraints=critical,CA:TRUE" -keyout ca.key -out ca.crt
issue() {
    openssl req -newkey rsa:2048 -nodes -sha256 -subj "/CN=konnectivity-$1" -keyout "$1.key" -out "$1.csr"
    openssl x509 -req -sha256 -days 1 -in "$1.csr" -CA ca.crt -CAkey ca.key -CAcreateserial -extfile <(echo "$2") \
        -out "$1.crt"
    rm "$1.csr"
}
issue server "extendedKeyUsage=serverAuth
subjectAltName=IP:${ADDRESS}"
issue agent "extendedKeyUsage=clientAuth"
"""

_LABELS: Final = 'labels:\n    app: konnectivity-agent\n    openshift.io/bootstrap-only: "true"\n'

NATIVE_MANIFESTS: Final = {
    "egress-selector-config.yaml": """\
apiVersion: apiserver.k8s.io/v1beta1
kind: EgressSelectorConfiguration
egressSelections:
- name: cluster
  connection:
    proxyProtocol: GRPC
    transport:
      uds:
        udsName: /etc/kubernetes/config/konnectivity-server.socket
- name: controlplane
  connection:
    proxyProtocol: Direct
- name: etcd
  connection:
    proxyProtocol: Direct
""",
    "konnectivity-config-override.yaml": """\
apiVersion: kubecontrolplane.config.openshift.io/v1
kind: KubeAPIServerConfig
apiServerArguments:
  egress-selector-config-file:
  - /etc/kubernetes/config/egress-selector-config.yaml
""",
    "konnectivity-server-pod.yaml": """\
apiVersion: v1
kind: Pod
metadata:
  name: konnectivity-server
  namespace: kube-system
  labels:
    app: konnectivity-server
spec:
  hostNetwork: true
  priorityClassName: system-node-critical
  containers:
  - name: konnectivity-server
    image: ${KONNECTIVITY_IMAGE}
    command: [/usr/bin/proxy-server]
    args:
    - --logtostderr=true
    - --cluster-cert=/etc/konnectivity/server.crt
    - --cluster-key=/etc/konnectivity/server.key
    - --cluster-ca-cert=/etc/konnectivity/ca.crt
    - --uds-name=/etc/kubernetes/bootstrap-configs/konnectivity-server.socket
    - --server-port=0
    - --agent-port=8091
    - --health-port=2041
    - --mode=grpc
    - --proxy-strategies=destHost,defaultRoute
    - --keepalive-time=30s
    - --frontend-keepalive-time=30s
    livenessProbe:
      httpGet: {path: /healthz, port: 2041}
      initialDelaySeconds: 10
      periodSeconds: 10
    resources:
      requests: {cpu: 40m, memory: 50Mi}
    volumeMounts:
    - {name: config, mountPath: /etc/kubernetes/bootstrap-configs}
    - {name: certs, mountPath: /etc/konnectivity, readOnly: true}
  volumes:
  - name: config
    hostPath: {path: /etc/kubernetes/bootstrap-configs, type: DirectoryOrCreate}
  - name: certs
    hostPath: {path: /opt/openshift/tls/konnectivity, type: Directory}
""",
    "konnectivity-namespace.yaml": """\
apiVersion: v1
kind: Namespace
metadata:
  name: openshift-bootstrap-konnectivity
  labels:
    openshift.io/bootstrap-only: "true"
""",
    "konnectivity-agent-certs-secret.yaml": f"""\
apiVersion: v1
kind: Secret
metadata:
  name: konnectivity-agent-certs
  namespace: openshift-bootstrap-konnectivity
  {_LABELS}\
type: Opaque
data:
  tls.crt: ${{KONNECTIVITY_AGENT_CERT}}
  tls.key: ${{KONNECTIVITY_AGENT_KEY}}
  ca.crt: ${{KONNECTIVITY_CA_CERT}}
""",
    "konnectivity-agent-daemonset.yaml": f"""\
apiVersion: apps/v1
kind: DaemonSet
metadata:
  name: konnectivity-agent
  namespace: openshift-bootstrap-konnectivity
  {_LABELS}\
spec:
  selector:
    matchLabels:
      app: konnectivity-agent
  template:
    metadata:
      {_LABELS.replace("    ", "        ")}\
    spec:
      priorityClassName: system-node-critical
      tolerations:
      - operator: Exists
      containers:
      - name: konnectivity-agent
        image: ${{KONNECTIVITY_IMAGE}}
        command: [/usr/bin/proxy-agent]
        args:
        - --logtostderr=true
        - --ca-cert=/etc/konnectivity/ca.crt
        - --agent-cert=/etc/konnectivity/tls.crt
        - --agent-key=/etc/konnectivity/tls.key
        - --proxy-server-host=${{BOOTSTRAP_NODE_IP}}
        - --proxy-server-port=8091
        - --health-server-port=2041
        - --agent-identifiers=default-route=true
        - --keepalive-time=30s
        - --probe-interval=5s
        - --sync-interval=5s
        - --sync-interval-cap=30s
        livenessProbe:
          httpGet: {{path: /healthz, port: 2041}}
          initialDelaySeconds: 10
          periodSeconds: 10
        resources:
          requests: {{cpu: 40m, memory: 50Mi}}
        volumeMounts:
        - {{name: certs, mountPath: /etc/konnectivity, readOnly: true}}
      volumes:
      - name: certs
        secret:
          secretName: konnectivity-agent-certs
""",
}


def native_files(native: Native, *, ipv6: bool) -> dict[str, str]:
    """Give the built-in tunnel's files by path: all of them even where it is off, its functions empty."""
    if native == "none":
        return {}
    route = "ip -6 -j route get 2001:4860:4860::8888" if ipv6 else "ip -j route get 1.1.1.1"
    library = NATIVE_LIBRARY.replace("ROUTE_COMMAND", route) if native == "on" else NATIVE_LIBRARY_OFF
    return {
        **{f"/opt/openshift/{name}": text for name, text in NATIVE_MANIFESTS.items()},
        "/usr/local/bin/konnectivity-certs.sh": NATIVE_CERTIFICATES,
        "/usr/local/bin/konnectivity.sh": library,
    }
