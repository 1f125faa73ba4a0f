{{/* By which labels and annotations the objects of a job are known, and its pods are found. */}}

{{- define "ddplaunch.labels" -}}
{{- $version := regexReplaceAll "[^-.0-9A-Za-z_]" .Chart.AppVersion "_" -}}
{{- $labels := dict
  "app.kubernetes.io/name" .Values.name
  "app.kubernetes.io/instance" .Values.name
  "app.kubernetes.io/component" "training"
  "app.kubernetes.io/part-of" "ddplaunch"
  "app.kubernetes.io/managed-by" "ddplaunch"
  "app.kubernetes.io/version" $version
-}}
{{- merge dict .Values.kubernetes.labels $labels | toYaml -}}
{{- end -}}

{{/* What made an object, and of which plan. */}}
{{- define "ddplaunch.annotations" -}}
ddplaunch/version: {{ .Chart.AppVersion | quote }}
ddplaunch/spec: {{ include "ddplaunch.plan" . | sha256sum | quote }}
{{- end -}}

{{/* Labels that the pods of this job have and no others; a controller sets them. */}}
{{- define "ddplaunch.selector" -}}
{{- ternary "jobset.sigs.k8s.io/jobset-name" "batch.kubernetes.io/job-name" .Values.kubernetes.jobset }}: {{ .Values.name | quote }}
{{- end -}}

{{- define "ddplaunch.metadata" -}}
name: {{ .Values.name | quote }}
{{- with .Values.kubernetes.namespace }}
namespace: {{ . | quote }}
{{- end }}
annotations:
  {{- include "ddplaunch.annotations" . | nindent 2 }}
  {{- with .hook }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
labels:
  {{- include "ddplaunch.labels" . | nindent 2 }}
{{- end -}}
