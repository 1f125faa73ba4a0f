{{/* The labels and annotations that identify the objects of a job, and by which its pods are found. */}}

{{- define "ddplaunch.labels" -}}
{{- $labels := dict
  "app.kubernetes.io/name" .Values.name
  "app.kubernetes.io/instance" .Values.name
  "app.kubernetes.io/component" "training"
  "app.kubernetes.io/part-of" "ddplaunch"
  "app.kubernetes.io/managed-by" "ddplaunch"
  "app.kubernetes.io/version" (regexReplaceAll "[^-.0-9A-Za-z_]" .Chart.AppVersion "_")
-}}
{{- merge dict .Values.kubernetes.labels $labels | toYaml -}}
{{- end -}}

{{/* The job file, from which the agent derives the plan; Helm's own values are not part of it. */}}
{{- define "ddplaunch.jobFile" -}}
{{- omit .Values "sourceArchive" "createRole" "global" | toJson -}}
{{- end -}}

{{/* What made an object, and from which job file. */}}
{{- define "ddplaunch.annotations" -}}
ddplaunch/version: {{ .Chart.AppVersion | quote }}
ddplaunch/spec: {{ include "ddplaunch.jobFile" . | sha256sum | quote }}
{{- end -}}

{{/* Labels that only the pods of this job have; a controller sets them. */}}
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
