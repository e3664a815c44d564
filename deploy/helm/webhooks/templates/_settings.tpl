{{/* Settings of the service as environment variables. */}}

{{/* A value as the service reads it. Helm's numbers are floating: 33554432 must not become 3.3554432e+07. */}}
{{- define "webhooks.text" -}}
{{- if kindIs "slice" . -}}
{{ join "," . }}
{{- else if and (kindIs "float64" .) (eq (floor .) .) -}}
{{ printf "%.0f" . }}
{{- else -}}
{{ toString . }}
{{- end -}}
{{- end }}

{{/* The settings of a component, as YAML. Takes the root and the component's values, which win. */}}
{{- define "webhooks.settings" -}}
{{- $settings := mergeOverwrite (deepCopy .root.Values.settings) (deepCopy (.values.settings | default dict)) -}}
{{- $url := include "webhooks.publicUrl" .root -}}
{{- $given := or (dig "console" "public_url" "" $settings) (hasKey (.root.Values.settingsFrom.console | default dict) "public_url") -}}
{{- if and $url (not $given) -}}
{{- $_ := set $settings "console" (merge (dict "public_url" $url) ($settings.console | default dict)) -}}
{{- end -}}
{{ toYaml $settings }}
{{- end }}

{{/* Whole seconds of a duration as humantime writes it, rounded up. Takes the name of the setting and its text. */}}
{{- define "webhooks.seconds" -}}
{{- $text := regexReplaceAll "\\s+" (toString .text) "" -}}
{{- if not (regexMatch "^([0-9]+(ms|msec|s|sec|secs|second|seconds|m|min|mins|minute|minutes|h|hr|hrs|hour|hours))+$" $text) -}}
{{- fail (printf "%s: %q is no duration in ms, s, m and h, as in 25s or 1m 30s" .name (toString .text)) -}}
{{- end -}}
{{- $milliseconds := 0 -}}
{{- range regexFindAll "[0-9]+[a-z]+" $text -1 -}}
{{- $number := regexFind "^[0-9]+" . | int64 -}}
{{- $unit := regexFind "[a-z]+$" . -}}
{{- $factor := 60000 -}}
{{- if hasPrefix "ms" $unit -}}{{- $factor = 1 -}}
{{- else if hasPrefix "s" $unit -}}{{- $factor = 1000 -}}
{{- else if hasPrefix "h" $unit -}}{{- $factor = 3600000 -}}
{{- end -}}
{{- $milliseconds = add $milliseconds (mul $number $factor) -}}
{{- end -}}
{{ div (add $milliseconds 999) 1000 }}
{{- end }}

{{/* Not empty if the password is a file: the URL has the user alone. Takes the values of database or broker, and the name in
     capitals. */}}
{{- define "webhooks.passwordFile" -}}
{{- if contains (printf "$(%s_USERNAME)@" .name) .values.url -}}
/etc/webhooks/{{ lower .name }}-password/password
{{- end -}}
{{- end }}

{{/* The variable of a URL, from a Secret or composed here. The kubelet fills in the credentials: no manifest has them.
     Takes the values of database or broker, and the name in capitals. */}}
{{- define "webhooks.urlVariable" -}}
{{- if .values.url -}}
- name: {{ .name }}_USERNAME
  valueFrom:
    secretKeyRef: {name: {{ .values.existingSecret | quote }}, key: {{ .values.usernameKey | quote }}}
{{- with include "webhooks.passwordFile" . }}
- {name: WEBHOOKS__{{ $.name }}__PASSWORD_FILE, value: {{ . }}}
{{- else }}
- name: {{ .name }}_PASSWORD
  valueFrom:
    secretKeyRef: {name: {{ .values.existingSecret | quote }}, key: {{ .values.passwordKey | quote }}}
{{- end }}
- name: WEBHOOKS__{{ .name }}__URL
  value: {{ .values.url | quote }}
{{- else -}}
- name: WEBHOOKS__{{ .name }}__URL
  valueFrom:
    secretKeyRef: {name: {{ .values.existingSecret | quote }}, key: {{ .values.urlKey | quote }}}
{{- end -}}
{{- end }}

{{/* Every variable of a container. Takes the root, the component's values, and whether it opens secrets. */}}
{{- define "webhooks.variables" -}}
{{ include "webhooks.urlVariable" (dict "values" .root.Values.database "name" "DATABASE") }}
{{ include "webhooks.urlVariable" (dict "values" .root.Values.broker "name" "BROKER") }}
{{- if .opensSecrets }}
- name: WEBHOOKS__SECRETS__KEYS
  valueFrom:
    secretKeyRef: {name: {{ .root.Values.sealingKeys.existingSecret | quote }}, key: {{ .root.Values.sealingKeys.key | quote }}}
{{- end }}
{{- range $name := list "database" "broker" }}
{{- with (index $.root.Values $name).tls }}
{{- if .existingSecret }}
{{- if .caKey }}
- {name: WEBHOOKS__{{ upper $name }}__CA_FILE, value: /etc/webhooks/{{ $name }}/ca.crt}
{{- end }}
{{- if .certificateKey }}
- {name: WEBHOOKS__{{ upper $name }}__CLIENT_CERTIFICATE, value: /etc/webhooks/{{ $name }}/tls.crt}
- {name: WEBHOOKS__{{ upper $name }}__CLIENT_KEY, value: /etc/webhooks/{{ $name }}/tls.key}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- if .root.Values.receiversCa.existingConfigMap }}
- {name: WEBHOOKS__EGRESS__EXTRA_CA_FILE, value: /etc/webhooks/receivers/ca.crt}
{{- end }}
{{- range $section, $keys := .root.Values.settingsFrom }}
{{- range $key, $secret := $keys }}
- name: WEBHOOKS__{{ upper $section }}__{{ upper $key }}
  valueFrom:
    secretKeyRef: {name: {{ $secret.existingSecret | quote }}, key: {{ $secret.key | quote }}}
{{- end }}
{{- end }}
{{- range $section, $keys := include "webhooks.settings" (dict "root" .root "values" .values) | fromYaml }}
{{- range $key, $value := $keys }}
- name: WEBHOOKS__{{ upper $section }}__{{ upper $key }}
  value: {{ include "webhooks.text" $value | quote }}
{{- end }}
{{- end }}
{{- end }}

{{/* A volume with the files of a TLS Secret. Takes its values and the volume's name. */}}
{{- define "webhooks.tlsVolume" -}}
- name: {{ .name }}
  secret:
    secretName: {{ .values.existingSecret | quote }}
    items:
      {{- if .values.caKey }}
      - {key: {{ .values.caKey | quote }}, path: ca.crt}
      {{- end }}
      {{- if .values.certificateKey }}
      - {key: {{ .values.certificateKey | quote }}, path: tls.crt}
      - {key: {{ .values.privateKeyKey | quote }}, path: tls.key}
      {{- end }}
{{- end }}

{{/* A volume with the password's file, if it is one. Takes the values of database or broker, and the name in capitals. */}}
{{- define "webhooks.passwordVolume" -}}
{{- if include "webhooks.passwordFile" . }}
- name: {{ lower .name }}-password
  secret:
    secretName: {{ .values.existingSecret | quote }}
    items:
      - {key: {{ .values.passwordKey | quote }}, path: password}
{{- end }}
{{- end }}

{{- define "webhooks.volumes" -}}
{{- include "webhooks.passwordVolume" (dict "values" .Values.database "name" "DATABASE") }}
{{- include "webhooks.passwordVolume" (dict "values" .Values.broker "name" "BROKER") }}
{{- if .Values.database.tls.existingSecret }}
{{ include "webhooks.tlsVolume" (dict "values" .Values.database.tls "name" "database-tls") }}
{{- end }}
{{- if .Values.broker.tls.existingSecret }}
{{ include "webhooks.tlsVolume" (dict "values" .Values.broker.tls "name" "broker-tls") }}
{{- end }}
{{- with .Values.receiversCa }}
{{- if .existingConfigMap }}
- name: receivers-ca
  configMap:
    name: {{ .existingConfigMap | quote }}
    items:
      - {key: {{ .key | quote }}, path: ca.crt}
{{- end }}
{{- end }}
{{- end }}

{{/* Whole folders: files that are replaced in the Secret are replaced in the pod. */}}
{{- define "webhooks.mounts" -}}
{{- range $name := list "database" "broker" }}
{{- if include "webhooks.passwordFile" (dict "values" (index $.Values $name) "name" (upper $name)) }}
- {name: {{ $name }}-password, mountPath: /etc/webhooks/{{ $name }}-password, readOnly: true}
{{- end }}
{{- end }}
{{- if .Values.database.tls.existingSecret }}
- {name: database-tls, mountPath: /etc/webhooks/database, readOnly: true}
{{- end }}
{{- if .Values.broker.tls.existingSecret }}
- {name: broker-tls, mountPath: /etc/webhooks/broker, readOnly: true}
{{- end }}
{{- if .Values.receiversCa.existingConfigMap }}
- {name: receivers-ca, mountPath: /etc/webhooks/receivers, readOnly: true}
{{- end }}
{{- end }}
