"""A bootstrap.ign as the first plan would write it: shell blocks in bootkube.sh, and an egress file without effect.

`mutual_tls=False` is the plan's state at its own validation: no certificates, and an empty address of the server.
"""

from tests.support.bootkube_script import bootkube_script
from tests.support.bootstrap_corpus import bootstrap_config

from umbilical.bootstrap.names import INLINE
from umbilical.ignition.data_url import format_data_url

SOCKET = "/etc/kubernetes/bootstrap-configs/konnectivity-server.socket"
EGRESS = f"""\
apiVersion: kubecontrolplane.config.openshift.io/v1
kind: KubeAPIServerConfig
egressSelectorConfiguration:
  egressSelections:
  - name: "cluster"
    connection:
      proxyProtocol: "HTTPConnect"
      transport:
        uds:
          udsName: "{SOCKET}"
"""
IMAGE_BLOCK = "KONNECTIVITY_IMAGE=$(image_for apiserver-network-proxy)\n"
ADDRESS_BLOCK = """\
    BOOTSTRAP_NODE_IP=$(ip route get 1.1.1.1 2>/dev/null | awk '{for(i=1;i<=NF;i++) if($i=="src") print $(i+1); exit}')
    echo "Detected bootstrap node IP: ${BOOTSTRAP_NODE_IP}"
"""
CERTIFICATE_BLOCK = r"""
    KONNECTIVITY_CERT_DIR=/opt/openshift/tls/konnectivity
    mkdir -p "${KONNECTIVITY_CERT_DIR}"
    for role in server agent; do
        openssl req -new -newkey rsa:2048 -nodes -subj "/CN=konnectivity-${role}/O=openshift" \
            -keyout "${KONNECTIVITY_CERT_DIR}/${role}.key" -out "${KONNECTIVITY_CERT_DIR}/${role}.csr"
    done
    openssl x509 -req -in "${KONNECTIVITY_CERT_DIR}/server.csr" -days 1 -CAcreateserial \
        -CA /opt/openshift/tls/root-ca.crt -CAkey /opt/openshift/tls/root-ca.key \
        -out "${KONNECTIVITY_CERT_DIR}/server.crt" \
        -extfile <(printf "extendedKeyUsage=serverAuth\nsubjectAltName=IP:${BOOTSTRAP_NODE_IP}")
    openssl x509 -req -in "${KONNECTIVITY_CERT_DIR}/agent.csr" -days 1 -CAcreateserial \
        -CA /opt/openshift/tls/root-ca.crt -CAkey /opt/openshift/tls/root-ca.key \
        -out "${KONNECTIVITY_CERT_DIR}/agent.crt" -extfile <(printf "extendedKeyUsage=clientAuth")
    cp /opt/openshift/tls/root-ca.crt "${KONNECTIVITY_CERT_DIR}/ca.crt"
    rm -f "${KONNECTIVITY_CERT_DIR}"/*.csr
    cat > manifests/konnectivity-agent-certs.yaml <<EOF
apiVersion: v1
kind: Secret
metadata:
  name: konnectivity-agent-certs
  namespace: kube-system
  labels: {app: konnectivity-agent, openshift.io/bootstrap-only: "true"}
type: Opaque
data:
  tls.crt: $(base64 -w0 "${KONNECTIVITY_CERT_DIR}/agent.crt")
  tls.key: $(base64 -w0 "${KONNECTIVITY_CERT_DIR}/agent.key")
  ca.crt: $(base64 -w0 /opt/openshift/tls/root-ca.crt)
EOF
"""
SERVER_BLOCK = f"""
    cat > /etc/kubernetes/manifests/konnectivity-server-pod.yaml <<EOF
apiVersion: v1
kind: Pod
metadata:
  name: konnectivity-server
  namespace: kube-system
spec:
  hostNetwork: true
  priorityClassName: system-node-critical
  containers:
  - name: konnectivity-server
    image: ${{KONNECTIVITY_IMAGE}}
    command: [/usr/bin/proxy-server]
    args:
    - --logtostderr=true
    - --uds-name={SOCKET}
    - --cluster-cert=/etc/konnectivity/server.crt
    - --cluster-key=/etc/konnectivity/server.key
    - --cluster-ca-cert=/etc/konnectivity/ca.crt
    - --agent-port=8091
    - --health-port=2041
    - --mode=http-connect
    - --proxy-strategies=destHost,defaultRoute
    volumeMounts:
    - {{name: config-dir, mountPath: /etc/kubernetes/bootstrap-configs}}
    - {{name: konnectivity-certs, mountPath: /etc/konnectivity, readOnly: true}}
  volumes:
  - {{name: config-dir, hostPath: {{path: /etc/kubernetes/bootstrap-configs, type: Directory}}}}
  - {{name: konnectivity-certs, hostPath: {{path: /opt/openshift/tls/konnectivity, type: Directory}}}}
EOF
"""
AGENT_BLOCK = """\
    cat > manifests/konnectivity-agent-daemonset.yaml <<EOF
apiVersion: apps/v1
kind: DaemonSet
metadata:
  name: konnectivity-agent
  namespace: kube-system
  labels: {app: konnectivity-agent, openshift.io/bootstrap-only: "true"}
spec:
  selector:
    matchLabels: {app: konnectivity-agent}
  template:
    metadata:
      labels: {app: konnectivity-agent}
    spec:
      hostNetwork: true
      dnsPolicy: Default
      priorityClassName: system-node-critical
      tolerations:
      - operator: Exists
      containers:
      - name: konnectivity-agent
        image: ${KONNECTIVITY_IMAGE}
        command: [/usr/bin/proxy-agent]
        args:
        - --logtostderr=true
        - --ca-cert=/etc/konnectivity/ca.crt
        - --agent-cert=/etc/konnectivity/tls.crt
        - --agent-key=/etc/konnectivity/tls.key
        - --proxy-server-host=${BOOTSTRAP_NODE_IP}
        - --proxy-server-port=8091
        - --health-server-port=2041
        - --agent-identifiers=default-route=true
        - --sync-interval=5s
        volumeMounts:
        - {name: konnectivity-certs, mountPath: /etc/konnectivity, readOnly: true}
      volumes:
      - name: konnectivity-certs
        secret: {secretName: konnectivity-agent-certs}
EOF

"""


def inline_script(*, mutual_tls: bool = True) -> str:
    script = bootkube_script("4.18")
    setup = ADDRESS_BLOCK + CERTIFICATE_BLOCK + SERVER_BLOCK if mutual_tls else _without_tls(SERVER_BLOCK)
    agent = AGENT_BLOCK if mutual_tls else _without_tls(AGENT_BLOCK).replace("${BOOTSTRAP_NODE_IP}", "")
    render = "/usr/bin/cluster-kube-apiserver-operator render \\\n"
    for place, added in (
        ("CLUSTER_BOOTSTRAP_IMAGE=", IMAGE_BLOCK),
        ('    record_service_stage_start "kube-apiserver-bootstrap"\n', setup),
        ('    record_service_stage_start "cb-bootstrap"\n', agent),
    ):
        assert script.count(place) == 1, place
        script = script.replace(place, added + place)
    assert script.count(render) == 1
    return script.replace(render, f"{render}\t\t\t--config-override-files=/assets/egress-selector-config.yaml \\\n")


def inline_config(script: str | None = None) -> bytes:
    egress = {
        "overwrite": True,
        "path": INLINE.egress,
        "user": {"name": "root"},
        "contents": {"source": format_data_url(EGRESS.encode())},
        "mode": 384,
    }
    return bootstrap_config(script=script or inline_script(), extra_files=(egress,))


def _without_tls(block: str) -> str:
    words = ("-cert", "-key", "secret: {", *(("volumeMounts:", "volumes:") if block is AGENT_BLOCK else ()))
    return "\n".join(line for line in block.split("\n") if not any(word in line for word in words))
