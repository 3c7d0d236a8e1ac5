{{- /* The agents' pod template, the same in a DaemonSet and in a Deployment. */ -}}
{{- define "umbilical.agentPod" -}}
{{- $agent := .Values.agent -}}
{{- $of := dict "root" . "component" "agent" "of" $agent "role" "agent" -}}
metadata:
  {{- include "umbilical.podMetadata" $of | nindent 2 }}
  {{- with $agent.podAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  serviceAccountName: {{ include "umbilical.fullname" . }}-agent
  automountServiceAccountToken: {{ .Values.leases.enabled }}
  enableServiceLinks: false
  {{- with include "umbilical.pullSecrets" . }}
  {{- . | nindent 2 }}
  {{- end }}
  {{- if $agent.hostNetwork }}
  hostNetwork: true
  {{- end }}
  dnsPolicy: {{ include "umbilical.agentDnsPolicy" $agent }}
  {{- with include "umbilical.placement" $of }}
  {{- . | nindent 2 }}
  {{- end }}
  terminationGracePeriodSeconds: {{ $agent.terminationGracePeriodSeconds }}
  securityContext:
    {{- include "umbilical.podSecurity" (dict "root" . "asRoot" false) | nindent 4 }}
  containers:
    - name: agent
      {{- include "umbilical.container" . | nindent 6 }}
      args:
        {{- include "umbilical.agentArguments" . | nindent 8 }}
      env:
        - {name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
        - {name: NODE_IP, valueFrom: {fieldRef: {fieldPath: status.hostIP}}}
      ports:
        - {name: metrics, containerPort: {{ $agent.healthPort }}, protocol: TCP}
      startupProbe:
        {{- include "umbilical.httpGet" (dict "path" "/healthz" "port" "metrics" "of" $agent) | nindent 8 }}
        periodSeconds: 2
        timeoutSeconds: 5
        failureThreshold: 60
      livenessProbe:
        {{- include "umbilical.httpGet" (dict "path" "/healthz" "port" "metrics" "of" $agent) | nindent 8 }}
        periodSeconds: 30
        timeoutSeconds: 5
        failureThreshold: 6
      readinessProbe:
        {{- include "umbilical.httpGet" (dict "path" "/readyz" "port" "metrics" "of" $agent) | nindent 8 }}
        periodSeconds: 10
        timeoutSeconds: 5
        failureThreshold: 1
      {{- with $agent.resources }}
      resources:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      volumeMounts:
        - {name: agent-certificate, mountPath: /etc/umbilical/agent, readOnly: true}
  volumes:
    - {{- include "umbilical.secretVolume" $of | nindent 6 }}
{{- end -}}

{{- define "umbilical.agentDnsPolicy" -}}
{{- if .dnsPolicy -}}
{{ .dnsPolicy }}
{{- else if and .hostNetwork .servers -}}
Default
{{- else if .hostNetwork -}}
ClusterFirstWithHostNet
{{- else -}}
ClusterFirst
{{- end -}}
{{- end -}}

{{- define "umbilical.agentArguments" -}}
{{- $agent := .Values.agent -}}
{{- $directory := "/etc/umbilical/agent" -}}
{{- $inside := printf "%s-agents.%s.svc:%v" (include "umbilical.fullname" .) .Release.Namespace .Values.server.ports.agents -}}
- agent
- run
- --id=$(POD_NAME)
- --ca={{ $directory }}/ca.crt
- --cert={{ $directory }}/tls.crt
- --key={{ $directory }}/tls.key
{{- range default (list $inside) $agent.servers }}
- --server={{ . }}
{{- end }}
- --identifiers={{ $agent.identifiers }}
- --health={{ include "umbilical.healthHost" $agent }}:{{ $agent.healthPort }}
{{- if .Values.leases.enabled }}
- --count-leases
- --lease-namespace={{ .Release.Namespace }}
- --lease-selector={{ include "umbilical.leaseLabel" . }}
{{- end }}
- --log-format={{ $agent.logFormat }}
- --log-level={{ $agent.logLevel }}
{{- range $agent.extraArgs }}
- {{ . | quote }}
{{- end }}
{{- end -}}
