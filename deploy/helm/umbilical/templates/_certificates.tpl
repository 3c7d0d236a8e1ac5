{{- /* What the Job and the CronJob of the certificates need of the API. Argument: dict "root" $ "component" "certificates"
"name" NAME "annotations" DICT */ -}}
{{- define "umbilical.certificateRights" -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  {{- include "umbilical.metadata" . | nindent 2 }}
  {{- with .annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
automountServiceAccountToken: false
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  {{- include "umbilical.metadata" . | nindent 2 }}
  {{- with .annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
rules:
  # RBAC cannot limit this verb to names.
  - apiGroups: [""]
    resources: [secrets]
    verbs: [create]
  - apiGroups: [""]
    resources: [secrets]
    resourceNames:
      - {{ include "umbilical.fullname" .root }}-ca
      {{- range list "server" "agent" "client" }}
      - {{ include "umbilical.secret" (dict "root" $.root "role" .) }}
      {{- end }}
    verbs: [get, patch]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  {{- include "umbilical.metadata" . | nindent 2 }}
  {{- with .annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: {{ .name }}
subjects:
  - kind: ServiceAccount
    name: {{ .name }}
    namespace: {{ .root.Release.Namespace }}
{{- end -}}

{{- define "umbilical.certificateJob" -}}
{{- $values := .root.Values -}}
backoffLimit: 3
activeDeadlineSeconds: 300
ttlSecondsAfterFinished: 3600
template:
  metadata:
    labels:
      {{- include "umbilical.labels" . | nindent 6 }}
  spec:
    serviceAccountName: {{ .name }}
    automountServiceAccountToken: true
    enableServiceLinks: false
    restartPolicy: Never
    {{- with include "umbilical.pullSecrets" .root }}
    {{- . | nindent 4 }}
    {{- end }}
    {{- with $values.server.nodeSelector }}
    nodeSelector:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    {{- with $values.server.tolerations }}
    tolerations:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    securityContext:
      {{- include "umbilical.podSecurity" (dict "root" .root "asRoot" false) | nindent 6 }}
    containers:
      - name: certificates
        {{- include "umbilical.container" .root | nindent 8 }}
        args:
          - pki
          - secrets
          - --namespace={{ .root.Release.Namespace }}
          - --ca-secret={{ include "umbilical.fullname" .root }}-ca
          {{- range list "server" "agent" "client" }}
          - --{{ . }}-secret={{ include "umbilical.secret" (dict "root" $.root "role" .) }}
          {{- end }}
          {{- range include "umbilical.serverNames" .root | fromJsonArray }}
          - --address={{ . }}
          {{- end }}
          - --ttl={{ $values.certificates.generate.lifetimeHours }}h
          - --key-type={{ $values.certificates.generate.keyType }}
        resources:
          requests: {cpu: 50m, memory: 64Mi}
{{- end -}}
