{{- define "umbilical.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- /* At most 40 characters: the names of Services and Jobs add to it, and have 63. */ -}}
{{- define "umbilical.fullname" -}}
{{- $name := include "umbilical.name" . -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- /* Labels that select pods. Argument: dict "root" $ "component" NAME */ -}}
{{- define "umbilical.selector" -}}
app.kubernetes.io/name: {{ include "umbilical.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{- define "umbilical.labels" -}}
{{ include "umbilical.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- /* Metadata. Argument: dict "root" $ "component" NAME "name" NAME */ -}}
{{- define "umbilical.metadata" -}}
name: {{ .name }}
namespace: {{ .root.Release.Namespace }}
labels:
  {{- include "umbilical.labels" . | nindent 2 }}
{{- end -}}

{{- define "umbilical.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end -}}
{{- end -}}

{{- /* Name of the Secret of a role. Argument: dict "root" $ "role" server|agent|client */ -}}
{{- define "umbilical.secret" -}}
{{- default (printf "%s-%s" (include "umbilical.fullname" .root) .role) (index .root.Values.certificates.secrets .role) -}}
{{- end -}}

{{- /* Names and addresses of the servers' certificate, as a JSON list. */ -}}
{{- define "umbilical.serverNames" -}}
{{- $names := list -}}
{{- $full := include "umbilical.fullname" . -}}
{{- $services := list (printf "%s-agents" $full) -}}
{{- if eq .Values.server.frontend.type "tcp" -}}
{{- $services = append $services (printf "%s-clients" $full) -}}
{{- end -}}
{{- range $services -}}
{{- $inside := printf "%s.%s" . $.Release.Namespace -}}
{{- $names = concat $names (list . $inside (printf "%s.svc" $inside) (printf "%s.svc.cluster.local" $inside)) -}}
{{- end -}}
{{- with .Values.server.frontend.clusterIP -}}
{{- $names = append $names . -}}
{{- end -}}
{{- concat $names .Values.certificates.addresses | uniq | toJson -}}
{{- end -}}

{{- /* Address of health and metrics of server or agent; empty: all addresses. */ -}}
{{- define "umbilical.healthHost" -}}
{{- if .healthHost -}}
{{ .healthHost }}
{{- else if .hostNetwork -}}
127.0.0.1
{{- end -}}
{{- end -}}

{{- /* "true" if Prometheus can reach health and metrics. */ -}}
{{- define "umbilical.isScraped" -}}
{{- if and (ne .kind "none") (ne (include "umbilical.healthHost" .) "127.0.0.1") -}}true{{- end -}}
{{- end -}}

{{- /* A probe of the health port. Argument: dict "path" PATH "port" NAME "of" VALUES */ -}}
{{- define "umbilical.httpGet" -}}
httpGet:
  path: {{ .path }}
  port: {{ .port }}
  {{- if eq (include "umbilical.healthHost" .of) "127.0.0.1" }}
  host: 127.0.0.1
  {{- end }}
{{- end -}}

{{- define "umbilical.containerSecurity" -}}
allowPrivilegeEscalation: false
capabilities:
  drop: [ALL]
readOnlyRootFilesystem: true
{{- end -}}

{{- /* Argument: dict "root" $ "asRoot" bool */ -}}
{{- define "umbilical.podSecurity" -}}
seccompProfile:
  type: RuntimeDefault
{{- if .asRoot }}
runAsUser: 0
{{- else }}
runAsNonRoot: true
{{- with .root.Values.podSecurity.user }}
runAsUser: {{ int64 . }}
runAsGroup: {{ int64 . }}
fsGroup: {{ int64 . }}
{{- end }}
{{- end }}
{{- end -}}

{{- /* The container's image and what all containers share. */ -}}
{{- define "umbilical.container" -}}
image: {{ include "umbilical.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
command: [/usr/bin/umbilical]
terminationMessagePolicy: FallbackToLogsOnError
securityContext:
  {{- include "umbilical.containerSecurity" . | nindent 2 }}
{{- end -}}

{{- define "umbilical.pullSecrets" -}}
{{- with .Values.image.pullSecrets -}}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- end -}}

{{- /* Where the pods of a workload may run. Argument: dict "root" $ "component" NAME "of" VALUES */ -}}
{{- define "umbilical.placement" -}}
{{- with .of.priorityClassName -}}
priorityClassName: {{ . }}
{{- end }}
{{- with .of.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .of.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .of.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- if and .of.topologySpread (eq .of.kind "Deployment") }}
topologySpreadConstraints:
  {{- range list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
  - maxSkew: 1
    topologyKey: {{ . }}
    # A missing node must not keep the tunnel from starting.
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "umbilical.selector" $ | nindent 8 }}
  {{- end }}
{{- end }}
{{- end -}}

{{- /* Metadata of pods. Argument: dict "root" $ "component" NAME "of" VALUES */ -}}
{{- define "umbilical.podMetadata" -}}
labels:
  {{- include "umbilical.labels" . | nindent 2 }}
  {{- with .of.podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{- /* Volume of a role's Secret: owner and the pod's group may read it. */ -}}
{{- define "umbilical.secretVolume" -}}
name: {{ .role }}-certificate
secret:
  secretName: {{ include "umbilical.secret" . }}
  defaultMode: 0440
{{- end -}}

{{- /* Where clients inside this cluster dial the servers. */ -}}
{{- define "umbilical.frontend" -}}
{{- if eq .Values.server.frontend.type "unix" -}}
unix:{{ .Values.server.frontend.socketDirectory }}/umbilical.sock
{{- else -}}
{{ include "umbilical.fullname" . }}-clients.{{ .Release.Namespace }}.svc:{{ .Values.server.ports.clients }}
{{- end -}}
{{- end -}}

{{- /* Label of the servers' leases: of this release only. */ -}}
{{- define "umbilical.leaseLabel" -}}
k8s-app={{ include "umbilical.fullname" . }}-server
{{- end -}}

{{- /* Refuse values that cannot work together; the schema sees each value alone. */ -}}
{{- define "umbilical.validate" -}}
{{- $server := .Values.server -}}
{{- $agent := .Values.agent -}}
{{- if and (eq $server.kind "none") (eq $agent.kind "none") -}}
{{- fail "server.kind and agent.kind are both none: nothing to install" -}}
{{- end -}}
{{- if and (eq $server.kind "none") (ne .Values.certificates.mode "existing") -}}
{{- fail (printf "certificates.mode is %s and server.kind none: the agents need the servers' CA; set certificates.mode to existing and copy the Secret of the agents from the servers' cluster" .Values.certificates.mode) -}}
{{- end -}}
{{- if and (eq $server.kind "none") (not $agent.servers) -}}
{{- fail "server.kind is none: set agent.servers to the servers' addresses" -}}
{{- end -}}
{{- if and (eq $server.kind "none") .Values.leases.enabled -}}
{{- fail "leases.enabled needs servers of this release; with server.kind none set agent.servers" -}}
{{- end -}}
{{- if and (eq $server.frontend.type "unix") (ne $server.kind "DaemonSet") (ne $server.kind "none") -}}
{{- fail "server.frontend.type unix needs server.kind DaemonSet: kube-apiserver uses the socket of its own node" -}}
{{- end -}}
{{- end -}}
