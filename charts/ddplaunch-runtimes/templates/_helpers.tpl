{{- define "ddplaunch.labels" -}}
app.kubernetes.io/part-of: ddplaunch
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
app.kubernetes.io/version: {{ regexReplaceAll "[^-.0-9A-Za-z_]" .Chart.AppVersion "_" | quote }}
{{- end -}}

{{/* Environment of both containers: the TrainJob's name, which is also its JobSet's, and the file for the verdict. */}}
{{- define "ddplaunch.environment" -}}
- {name: DDPLAUNCH_JOB, valueFrom: {fieldRef: {fieldPath: "metadata.labels['jobset.sigs.k8s.io/jobset-name']"}}}
- {name: DDPLAUNCH_TERMINATION, value: /ddplaunch-verdict/message}
{{- end -}}
