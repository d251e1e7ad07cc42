{{- define "combee.labels" -}}
app.kubernetes.io/name: combee
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "combee.selector" -}}
app.kubernetes.io/name: combee
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .role }}
{{- end }}

{{- define "combee.image" -}}
{{- with .Values.image }}
{{- .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end }}
{{- end }}

{{- define "combee.podSecurity" -}}
automountServiceAccountToken: false
enableServiceLinks: false # a Service named combee would set variables that look like settings
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "combee.containerSecurity" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}

{{- /* How a pod reaches Kafka, as its Kafka user; context: root, user. */ -}}
{{- define "combee.kafkaEnv" -}}
{{- $kafka := .root.Values.kafka -}}
{{- with $kafka.strimzi.cluster -}}
- {name: COMBEE_BOOTSTRAP_SERVERS, value: {{ . }}-kafka-bootstrap:9093}
- {name: COMBEE_SECURITY_PROTOCOL, value: SASL_SSL}
- {name: COMBEE_SASL_MECHANISM, value: SCRAM-SHA-512}
- {name: COMBEE_SASL_USERNAME, value: {{ $.user }}}
- name: COMBEE_SASL_PASSWORD
  valueFrom:
    secretKeyRef: {name: {{ $.user }}, key: password}
{{- else -}}
- name: COMBEE_BOOTSTRAP_SERVERS
  value: {{ required "kafka.bootstrapServers or kafka.strimzi.cluster is needed" $kafka.bootstrapServers | quote }}
- {name: COMBEE_SECURITY_PROTOCOL, value: {{ $kafka.securityProtocol }}}
{{- if hasPrefix "SASL_" $kafka.securityProtocol }}
- {name: COMBEE_SASL_MECHANISM, value: {{ $kafka.sasl.mechanism }}}
- name: COMBEE_SASL_USERNAME
  value: {{ required "kafka.sasl.username is needed with SASL" $kafka.sasl.username | quote }}
- name: COMBEE_SASL_PASSWORD
  valueFrom:
    secretKeyRef:
      name: {{ required "kafka.sasl.passwordSecret.name is needed with SASL" $kafka.sasl.passwordSecret.name }}
      key: {{ $kafka.sasl.passwordSecret.key }}
{{- end }}
{{- end }}
{{- if include "combee.caSecret" .root }}
- {name: COMBEE_SSL_CAFILE, value: /etc/combee/kafka/ca.crt}
{{- end }}
{{- end }}

{{- define "combee.caSecret" -}}
{{- with .Values.kafka.strimzi.cluster }}{{ . }}-cluster-ca-cert{{ else }}{{ .Values.kafka.ca.secret }}{{ end }}
{{- end }}

{{- /* The settings that a service reads; context: root, role. What no service of Combee reads is for all. */ -}}
{{- define "combee.settings" -}}
{{- $variables := .root.Files.Get "files/variables.yaml" | fromYaml -}}
{{- $all := list }}{{ range $variables.groups }}{{ $all = concat $all . }}{{ end -}}
{{- $read := list }}{{ range index $variables.roles .role }}{{ $read = concat $read (index $variables.groups .) }}{{ end -}}
{{- range $name, $value := .root.Values.settings }}
{{- if or (has $name $read) (not (has $name $all)) }}
- name: {{ $name }}
  value: {{ $value | quote }}
{{- end }}
{{- end }}
{{- range $name, $from := .root.Values.secretSettings }}
{{- if not (or (has $name $all) $from.roles) }}
{{- fail (printf "secretSettings.%s: Combee reads no such setting; name the services that need it in its roles" $name) }}
{{- end }}
{{- if has $.role ($from.roles | default list) | or (has $name $read) }}
- name: {{ $name }}
  valueFrom:
    secretKeyRef: {name: {{ $from.secret }}, key: {{ $from.key }}}
{{- end }}
{{- end }}
- name: COMBEE_LOG_JSON
  value: "true"
{{- end }}

{{- define "combee.mounts" -}}
- {name: tmp, mountPath: /tmp}
{{- if include "combee.caSecret" . }}
- {name: kafka-ca, mountPath: /etc/combee/kafka, readOnly: true}
{{- end }}
{{- end }}

{{- define "combee.volumes" -}}
- name: tmp
  emptyDir: {sizeLimit: 256Mi}
{{- with include "combee.caSecret" . }}
- name: kafka-ca
  secret:
    secretName: {{ . }}
    items: [{key: {{ $.Values.kafka.ca.key }}, path: ca.crt}]
{{- end }}
{{- end }}

{{- /* The names of the services that run. */ -}}
{{- define "combee.roles" -}}
{{- range $role, $_ := .Values.roles }}{{ if dig $role "enabled" true (pick $.Values "gateway" "evaluate") }}{{ $role }} {{ end }}{{ end }}
{{- end }}
