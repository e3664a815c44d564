{{/* Names and labels. */}}

{{- define "webhooks.name" -}}
{{ .Values.nameOverride | default .Chart.Name | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* The beginning of every name. 40 characters leave room for the longest ending, and for `keda-hpa-` of KEDA. */}}
{{- define "webhooks.fullname" -}}
{{- $name := include "webhooks.name" . -}}
{{- if .Values.fullnameOverride -}}
{{ .Values.fullnameOverride | trunc 40 | trimSuffix "-" }}
{{- else if contains $name .Release.Name -}}
{{ .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else -}}
{{ printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" }}
{{- end -}}
{{- end }}

{{/* Which pods belong to a component. Takes the root and the component. */}}
{{- define "webhooks.selector" -}}
app.kubernetes.io/name: {{ include "webhooks.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{/* Takes the root and, for what belongs to one, the component. */}}
{{- define "webhooks.labels" -}}
app.kubernetes.io/name: {{ include "webhooks.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
{{- with .component }}
app.kubernetes.io/component: {{ . }}
{{- end }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name (.root.Chart.Version | replace "+" "_") }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "webhooks.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{ .Values.serviceAccount.name | default (include "webhooks.fullname" .) }}
{{- else -}}
{{ .Values.serviceAccount.name | default "default" }}
{{- end -}}
{{- end }}

{{- define "webhooks.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}
{{- end -}}
{{- end -}}
{{- end }}

{{/* The three services: their programs, their values, and whether they open signing secrets. */}}
{{- define "webhooks.components" -}}
- {name: api-service, values: apiService, opensSecrets: true}
- {name: event-ingest, values: eventIngest, opensSecrets: false}
- {name: dispatcher, values: dispatcher, opensSecrets: true}
{{- end }}

{{/* The address under which browsers reach the API, if the chart makes it reachable. */}}
{{- define "webhooks.publicUrl" -}}
{{- if .Values.ingress.enabled -}}
{{ ternary "https" "http" (ne .Values.ingress.tlsSecretName "") }}://{{ .Values.ingress.host }}
{{- else if .Values.httpRoute.enabled -}}
{{ ternary "https" "http" .Values.httpRoute.https }}://{{ .Values.httpRoute.host }}
{{- end -}}
{{- end }}
