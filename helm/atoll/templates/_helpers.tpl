{{- define "atoll.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{/* 40 characters: KubeRay puts its own suffixes behind, and a pod's name ends at 63. */}}
{{- define "atoll.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- $name := include "atoll.name" . -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "atoll.selectorLabels" -}}
app.kubernetes.io/name: {{ include "atoll.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "atoll.labels" -}}
{{ include "atoll.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "atoll.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end -}}
{{- end -}}

{{- define "atoll.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "atoll.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "atoll.tokensSecret" -}}
{{- default (printf "%s-tokens" (include "atoll.fullname" .)) .Values.tokens.existingSecret -}}
{{- end -}}

{{- define "atoll.storageClaim" -}}
{{- default (printf "%s-storage" (include "atoll.fullname" .)) .Values.storage.existingClaim -}}
{{- end -}}

{{- define "atoll.rayAddress" -}}
{{- default (printf "%s-head-svc:6379" (include "atoll.fullname" .)) .Values.ray.address -}}
{{- end -}}

{{/* Value of a key of a secret in the cluster, or a new random one: an upgrade must not change a token. */}}
{{- define "atoll.keptOrRandom" -}}
{{- $found := lookup "v1" "Secret" .namespace .name -}}
{{- $kept := "" -}}
{{- if $found -}}
{{- $kept = dig "data" .key "" $found -}}
{{- end -}}
{{- if $kept -}}{{ $kept }}{{- else -}}{{ randAlphaNum 40 | b64enc }}{{- end -}}
{{- end -}}

{{- define "atoll.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "atoll.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsNonRoot: true
capabilities:
  drop: [ALL]
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{/* Environment of API and controller alike. */}}
{{- define "atoll.controlPlaneEnvironment" -}}
- name: ATOLL_DATABASE_URL
  valueFrom:
    secretKeyRef:
      {{- if .Values.database.existingSecret }}
      name: {{ .Values.database.existingSecret }}
      key: {{ .Values.database.existingSecretKey }}
      {{- else }}
      name: {{ include "atoll.fullname" . }}-postgresql
      key: url
      {{- end }}
- name: ATOLL_INTERNAL_TOKEN
  valueFrom:
    secretKeyRef:
      name: {{ include "atoll.tokensSecret" . }}
      key: internal-token
- name: ATOLL_STATE_DIRECTORY
  value: /tmp/atoll
- name: ATOLL_STORAGE_DIRECTORY
  value: /storage
- name: ATOLL_LOG_JSON
  value: {{ .Values.logJson | quote }}
- name: HOME
  value: /tmp
{{- end -}}

{{/* The settings that every process of the Ray cluster must share; the same as actors/ray_environment.py. */}}
{{- define "atoll.rayEnvironment" -}}
- name: RAY_AUTH_MODE
  value: disabled
- name: RAY_USAGE_STATS_ENABLED
  value: "0"
- name: RAY_ENABLE_AUTO_CONNECT
  value: "0"
- name: RAY_worker_niceness
  value: "0"
- name: RAY_prestart_worker_first_driver
  value: "0"
- name: RAY_raylet_start_wait_time_s
  value: "120"
- name: RAY_task_events_report_interval_ms
  value: "0"
- name: RAY_agent_register_timeout_ms
  value: "180000"
- name: RAY_health_check_initial_delay_ms
  value: "1000"
- name: RAY_health_check_period_ms
  value: "500"
- name: RAY_health_check_timeout_ms
  value: "2000"
- name: RAY_health_check_failure_threshold
  value: "5"
- name: RAY_grpc_client_keepalive_time_ms
  value: "2000"
- name: RAY_grpc_client_keepalive_timeout_ms
  value: "5000"
- name: RAY_gcs_rpc_server_reconnect_timeout_s
  value: "120"
{{- end -}}

{{- define "atoll.scheduling" -}}
{{- with .nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}
