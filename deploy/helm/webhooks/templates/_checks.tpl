{{/* Values that fit the schema and do not fit together. Each message names the value and says what to do. */}}

{{- define "webhooks.checks" -}}
{{- if not .Values.image.repository -}}
{{- fail "image.repository is not set: push the image that deploy/Containerfile makes, and say where it is" -}}
{{- end -}}
{{- range $name, $labels := dict "commonLabels" .Values.commonLabels "apiService.podLabels" .Values.apiService.podLabels "eventIngest.podLabels" .Values.eventIngest.podLabels "dispatcher.podLabels" .Values.dispatcher.podLabels -}}
{{- range $label, $_ := $labels -}}
{{- if or (hasPrefix "app.kubernetes.io/" $label) (hasPrefix "helm.sh/" $label) (and (ne $name "commonLabels") (hasKey $.Values.commonLabels $label)) -}}
{{- fail (printf "%s: the label %s is set already" $name $label) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- include "webhooks.checkSecrets" . -}}
{{- include "webhooks.checkSettings" . -}}
{{- include "webhooks.checkAccess" . -}}
{{- include "webhooks.checkMonitoring" . -}}
{{- end }}

{{- define "webhooks.checkSecrets" -}}
{{- range $name, $content := dict "database" "the key url holds the URL" "broker" "the key url holds the addresses" "sealingKeys" "the key keys holds id:64 hex digits" -}}
{{- if not (index $.Values $name).existingSecret -}}
{{- fail (printf "%s.existingSecret is not set: name a Secret of namespace %s, in which %s" $name $.Release.Namespace $content) -}}
{{- end -}}
{{- end -}}
{{- range $name := list "database" "broker" -}}
{{- $values := index $.Values $name -}}
{{- $variable := upper $name -}}
{{- $file := include "webhooks.passwordFile" (dict "values" $values "name" $variable) -}}
{{- range $url := splitList "://" $values.url | rest -}}
{{- $credentials := regexFind "^.*@" $url | trimSuffix "@" -}}
{{- $user := printf "$(%s_USERNAME)" $variable -}}
{{- if and $credentials (not (has $credentials (list $user (printf "%s:$(%s_PASSWORD)" $user $variable)))) -}}
{{- fail (printf "%s.url holds credentials: write %s@ instead, and put them into the Secret %s" $name $user $values.existingSecret) -}}
{{- end -}}
{{- if and $file (ne $credentials $user) -}}
{{- fail (printf "%s.url: write %s@ in each address, and the password is read from its file, or %s:$(%s_PASSWORD)@ in each" $name $user $user $variable) -}}
{{- end -}}
{{- end -}}
{{- if contains "password=" $values.url -}}
{{- fail (printf "%s.url holds a password: put it into the Secret %s" $name $values.existingSecret) -}}
{{- end -}}
{{- if ne (empty $values.tls.certificateKey) (empty $values.tls.privateKeyKey) -}}
{{- fail (printf "%s.tls: certificateKey and privateKeyKey come together" $name) -}}
{{- end -}}
{{- if and $values.tls.existingSecret (not $values.tls.caKey) (not $values.tls.certificateKey) -}}
{{- fail (printf "%s.tls.existingSecret is set, and no key of it is: set caKey or certificateKey" $name) -}}
{{- end -}}
{{- if and (not $values.tls.existingSecret) $values.tls.certificateKey -}}
{{- fail (printf "%s.tls.certificateKey is set: name its Secret in %s.tls.existingSecret" $name $name) -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/* What the chart sets itself. */}}
{{- define "webhooks.checkSettings" -}}
{{- $own := dict
  "database.url" "set database.existingSecret, and database.url if the Secret holds user and password alone"
  "broker.url" "set broker.existingSecret, and broker.url if the Secret holds user and password alone"
  "database.password_file" "write $(DATABASE_USERNAME)@ in database.url, and the Secret's passwordKey becomes the file"
  "broker.password_file" "write $(BROKER_USERNAME)@ in broker.url, and the Secret's passwordKey becomes the file"
  "database.ca_file" "set database.tls"
  "database.client_certificate" "set database.tls"
  "database.client_key" "set database.tls"
  "broker.ca_file" "set broker.tls"
  "broker.client_certificate" "set broker.tls"
  "broker.client_key" "set broker.tls"
  "secrets.keys" "set sealingKeys.existingSecret"
  "traces.headers" "it is a secret: name one in settingsFrom.traces.headers"
  "egress.extra_ca_file" "set receiversCa.existingConfigMap"
  "api.listen" "the chart sets it; see listenAddress"
  "ops.listen" "the chart sets it; see listenAddress" -}}
{{- range $section, $keys := .Values.settingsFrom -}}
{{- range $key, $_ := $keys -}}
{{- $name := printf "%s.%s" $section $key -}}
{{- if and (hasKey $own $name) (ne $name "traces.headers") -}}
{{- fail (printf "settingsFrom.%s cannot be set here: %s" $name (get $own $name)) -}}
{{- end -}}
{{- if hasKey (get $.Values.settings $section | default dict) $key -}}
{{- fail (printf "%s is set twice: in settings and in settingsFrom" $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $where := list "" "apiService" "eventIngest" "dispatcher" -}}
{{- $values := $.Values -}}
{{- if $where -}}{{- $values = index $.Values $where -}}{{- end -}}
{{- range $section, $keys := $values.settings -}}
{{- range $key, $value := $keys -}}
{{- $name := printf "%s.%s" $section $key -}}
{{- $path := printf "%ssettings.%s" (ternary (printf "%s." $where) "" (ne $where "")) $name -}}
{{- if hasKey $own $name -}}
{{- fail (printf "%s cannot be set here: %s" $path (get $own $name)) -}}
{{- end -}}
{{- if kindIs "invalid" $value -}}
{{- fail (printf "%s has no value: leave it out for its default" $path) -}}
{{- end -}}
{{- if and $where (has $name (list "broker.prefix" "broker.events_exchange" "retry.schedule" "retention.keep" "retention.bodies" "limits.event_data_bytes")) -}}
{{- fail (printf "%s: all processes need the same one; set it in settings" $path) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $api := mergeOverwrite (deepCopy .Values.settings) (deepCopy .Values.apiService.settings) -}}
{{- if and (eq (dig "api" "sessions" "database" $api) "introspection") .Values.networkPolicy.enabled (not .Values.networkPolicy.introspection.to) -}}
{{- fail "networkPolicy.introspection.to is empty: api-service asks the business application who is logged in; name its pods or addresses" -}}
{{- end -}}
{{- $from := .Values.settingsFrom.console | default dict -}}
{{- $login := or (dig "console" "login_url" "" $api) (hasKey $from "login_url") -}}
{{- $public := or (dig "console" "public_url" "" $api) (hasKey $from "public_url") (include "webhooks.publicUrl" .) -}}
{{- if and $login (not $public) -}}
{{- fail "console.login_url is set, and console.public_url is not: set it in settings, or enable ingress or httpRoute" -}}
{{- end -}}
{{- end }}

{{- define "webhooks.checkAccess" -}}
{{- $open := or .Values.ingress.enabled .Values.httpRoute.enabled -}}
{{- range $name := list "ingress" "httpRoute" -}}
{{- $values := index $.Values $name -}}
{{- if and $values.enabled (not $values.host) -}}
{{- fail (printf "%s.host is not set: the name under which browsers reach API and console" $name) -}}
{{- end -}}
{{- end -}}
{{- if and .Values.httpRoute.enabled (not .Values.httpRoute.parentRefs) -}}
{{- fail "httpRoute.parentRefs is empty: name the Gateway" -}}
{{- end -}}
{{- with .Values.networkPolicy -}}
{{- if .enabled -}}
{{- range $name := list "database" "broker" -}}
{{- if not (index $.Values.networkPolicy $name).to -}}
{{- fail (printf "networkPolicy.%s.to is empty: say where the %s is, as in [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: NAMESPACE}}}] or [{ipBlock: {cidr: 10.0.0.7/32}}], or set networkPolicy.enabled to false" $name $name) -}}
{{- end -}}
{{- end -}}
{{- if not .dns.to -}}
{{- fail "networkPolicy.dns.to is empty: no name would resolve" -}}
{{- end -}}
{{- if and $open (not .apiFrom) -}}
{{- fail "networkPolicy.apiFrom is empty: name the pods of the ingress controller or Gateway, as in [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: NAMESPACE}}}]" -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- define "webhooks.checkMonitoring" -}}
{{- if and .Values.monitoring.prometheusRule.enabled (not .Values.monitoring.prometheusRule.runbookUrl) -}}
{{- fail "monitoring.prometheusRule.runbookUrl is not set: the address where you publish deploy/runbooks.md" -}}
{{- end -}}
{{- end }}
