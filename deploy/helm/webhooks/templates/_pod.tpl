{{/* What the pods of services, migration and doctor have in common. */}}

{{/* Takes the root. */}}
{{- define "webhooks.podSettings" -}}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . | quote }}
  {{- end }}
{{- end }}
{{- with .Values.podSecurityContext }}
securityContext:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with include "webhooks.volumes" . | trim }}
volumes:
  {{- . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Takes the root, the component's values, and whether it opens secrets. */}}
{{- define "webhooks.containerSettings" -}}
image: {{ include "webhooks.image" .root | quote }}
imagePullPolicy: {{ .root.Values.image.pullPolicy }}
{{- with .root.Values.containerSecurityContext }}
securityContext:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.resources }}
resources:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with include "webhooks.mounts" .root | trim }}
volumeMounts:
  {{- . | nindent 2 }}
{{- end }}
env:
  {{- include "webhooks.variables" . | trim | nindent 2 }}
{{- end }}
