{{- /* The servers' pod template, the same in a Deployment and in a DaemonSet. */ -}}
{{- define "umbilical.serverPod" -}}
{{- $server := .Values.server -}}
{{- $of := dict "root" . "component" "server" "of" $server "role" "server" -}}
{{- $isUnix := eq $server.frontend.type "unix" -}}
metadata:
  {{- include "umbilical.podMetadata" $of | nindent 2 }}
  {{- with $server.podAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  serviceAccountName: {{ include "umbilical.fullname" . }}-server
  automountServiceAccountToken: {{ .Values.leases.enabled }}
  enableServiceLinks: false
  {{- with include "umbilical.pullSecrets" . }}
  {{- . | nindent 2 }}
  {{- end }}
  {{- if $server.hostNetwork }}
  hostNetwork: true
  # The API by which leases are written; nothing else is resolved.
  dnsPolicy: ClusterFirstWithHostNet
  {{- end }}
  {{- with include "umbilical.placement" $of }}
  {{- . | nindent 2 }}
  {{- end }}
  # preStop, open tunnels, and a margin.
  terminationGracePeriodSeconds: {{ add $server.gracefulShutdownSeconds 15 }}
  securityContext:
    {{- include "umbilical.podSecurity" (dict "root" . "asRoot" $isUnix) | nindent 4 }}
  containers:
    - name: server
      {{- include "umbilical.container" . | nindent 6 }}
      args:
        {{- include "umbilical.serverArguments" . | nindent 8 }}
      env:
        - {name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
        {{- if .Values.leases.enabled }}
        - {name: POD_UID, valueFrom: {fieldRef: {fieldPath: metadata.uid}}}
        - {name: POD_IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
        - {name: NODE_IP, valueFrom: {fieldRef: {fieldPath: status.hostIP}}}
        {{- end }}
      ports:
        {{- if not $isUnix }}
        - {name: clients, containerPort: {{ $server.ports.clients }}, protocol: TCP}
        {{- end }}
        - {name: agents, containerPort: {{ $server.ports.agents }}, protocol: TCP}
        - {name: metrics, containerPort: {{ $server.ports.health }}, protocol: TCP}
      startupProbe:
        {{- include "umbilical.httpGet" (dict "path" "/healthz" "port" "metrics" "of" $server) | nindent 8 }}
        periodSeconds: 2
        timeoutSeconds: 5
        failureThreshold: 60
      livenessProbe:
        {{- include "umbilical.httpGet" (dict "path" "/healthz" "port" "metrics" "of" $server) | nindent 8 }}
        periodSeconds: 30
        timeoutSeconds: 10
        failureThreshold: 3
      # Ready as soon as an agent is connected. Agents find servers that are not ready by the headless Service.
      readinessProbe:
        {{- include "umbilical.httpGet" (dict "path" "/readyz" "port" "metrics" "of" $server) | nindent 8 }}
        periodSeconds: 5
        timeoutSeconds: 5
        failureThreshold: 2
      lifecycle:
        # Until clients have noticed that this server leaves the Service.
        preStop: {sleep: {seconds: 5}}
      {{- with $server.resources }}
      resources:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      volumeMounts:
        - {name: server-certificate, mountPath: /etc/umbilical/server, readOnly: true}
        {{- if $server.agentIdentities }}
        - {name: identities, mountPath: /etc/umbilical/identities, readOnly: true}
        {{- end }}
        {{- if $isUnix }}
        - {name: socket, mountPath: {{ $server.frontend.socketDirectory }}}
        {{- end }}
        - {name: tmp, mountPath: /tmp}
  volumes:
    - {{- include "umbilical.secretVolume" $of | nindent 6 }}
    {{- if $server.agentIdentities }}
    - name: identities
      configMap:
        name: {{ include "umbilical.fullname" . }}-identities
    {{- end }}
    {{- if $isUnix }}
    - name: socket
      hostPath:
        path: {{ $server.frontend.socketDirectory }}
        type: DirectoryOrCreate
    {{- end }}
    - name: tmp
      emptyDir: {}
{{- end -}}

{{- define "umbilical.serverArguments" -}}
{{- $server := .Values.server -}}
{{- $directory := "/etc/umbilical/server" -}}
- server
- run
- --id=$(POD_NAME)
- --agent-cert={{ $directory }}/tls.crt
- --agent-key={{ $directory }}/tls.key
# Without it anybody who reaches the port would be accepted as an agent.
- --agent-ca={{ $directory }}/ca.crt
- --agents=:{{ $server.ports.agents }}
{{- if $server.agentIdentities }}
- --agent-identities=/etc/umbilical/identities/identities
{{- end }}
{{- if eq $server.frontend.type "unix" }}
- --listen={{ include "umbilical.frontend" . }}
{{- else }}
- --listen=:{{ $server.ports.clients }}
- --cert={{ $directory }}/tls.crt
- --key={{ $directory }}/tls.key
- --ca={{ $directory }}/ca.crt
{{- with $server.frontend.identities }}
- --frontend-identities={{ join "," . }}
{{- end }}
{{- end }}
- --mode={{ $server.protocol }}
- --strategies={{ join "," $server.strategies }}
- --health={{ include "umbilical.healthHost" $server }}:{{ $server.ports.health }}
{{- if ne $server.publish.type "none" }}
# For agents behind one address. With more servers than there are, they would search once a second.
- --count={{ $server.replicas }}
{{- end }}
- --workers={{ $server.workers }}
- --graceful-shutdown={{ $server.gracefulShutdownSeconds }}s
{{- if .Values.leases.enabled }}
- --publish-lease
# The rights to delete it go with the release, before the pods.
- --lease-owner=$(POD_NAME)/$(POD_UID)
- --lease-namespace={{ .Release.Namespace }}
- --lease-labels={{ include "umbilical.leaseLabel" . }}
{{- with .Values.leases.advertise }}
- --advertise={{ . }}
{{- end }}
{{- end }}
- --log-format={{ $server.logFormat }}
- --log-level={{ $server.logLevel }}
{{- range $server.extraArgs }}
- {{ . | quote }}
{{- end }}
{{- end -}}
