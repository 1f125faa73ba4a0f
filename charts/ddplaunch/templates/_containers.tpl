{{/* The containers of a pod, all of the trainer's image: same resolver, same Python, same devices. */}}

{{/* What the agent needs for itself. It reads the volumes, because the job's Python may be on one. */}}
{{- define "ddplaunch.small" -}}
resources:
  requests: {cpu: 50m, memory: 64Mi}
  limits: {memory: 512Mi}
securityContext:
  {{- include "ddplaunch.security" list | nindent 2 }}
  readOnlyRootFilesystem: true
volumeMounts:
  {{- include "ddplaunch.ownFiles" . | nindent 2 }}
  {{- range .Values.volumes }}
  - name: {{ .name | quote }}
    mountPath: {{ .mount_path | quote }}
    readOnly: true
  {{- end }}
{{- end -}}

{{/* Everything that the job file asks for. Takes a list of the root, secrets, and capabilities. */}}
{{- define "ddplaunch.large" -}}
{{- $root := first . -}}
terminationMessagePolicy: FallbackToLogsOnError
{{- include "ddplaunch.resources" $root | nindent 0 }}
securityContext:
  {{- /* RDMA pins memory, and without it containers may pin next to none. */}}
  {{- include "ddplaunch.security" (concat (ternary (list "IPC_LOCK") list (not (empty $root.Values.resources.rdma))) (last .)) | nindent 2 }}
env:
  {{- include "ddplaunch.environment" $root | nindent 2 }}
  {{- range $name, $from := index . 1 }}{{ with $from.secret }} {{- /* The agent refuses one without a source. */}}
  - name: {{ $name }}
    valueFrom: {secretKeyRef: {name: {{ .name | quote }}, key: {{ .key | quote }}}}
  {{- end }}{{ end }}
volumeMounts:
  {{- include "ddplaunch.ownFiles" $root | nindent 2 }}
  - name: shm
    mountPath: /dev/shm
  {{- range $root.Values.volumes }}
  - name: {{ .name | quote }}
    mountPath: {{ .mount_path | quote }}
    {{- if .read_only }}
    readOnly: true
    {{- end }}
  {{- end }}
{{- end -}}

{{/* Name, image and command. Takes a list of the root, the name and the agent's arguments. */}}
{{- define "ddplaunch.agent" -}}
{{- $values := (first .).Values -}}
- name: {{ index . 1 }}
  image: {{ $values.image | quote }}
  {{- with $values.kubernetes.image_pull_policy }}
  imagePullPolicy: {{ . }}
  {{- end }}
  command:
    - {{ $values.python | replace "$(" "$$(" | quote }} {{- /* Kubernetes replaces $(NAME) in commands. */}}
    - -I
    - -S
    - /ddplaunch/agent.pyz
    {{- toYaml (slice . 2) | nindent 4 }}
{{- end -}}

{{/* Takes a list of capabilities, which are the only ones. */}}
{{- define "ddplaunch.security" -}}
allowPrivilegeEscalation: false
capabilities:
  drop:
    - ALL
  {{- with . }}
  add:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}

{{/* What differs between nodes and attempts, by the labels of their pods: no node is named here. */}}
{{- define "ddplaunch.environment" -}}
{{- $name := .Values.name -}}
{{- $node := ternary (printf "%s-node-0" $name) $name .Values.kubernetes.jobset -}}
{{- $domain := .Values.kubernetes.cluster_domain | default "{domain}" -}}
{{- $rest := printf "%s.$(DDPLAUNCH_NAMESPACE).svc.%s" $name $domain -}}
- name: DDPLAUNCH_NODE
  valueFrom: {fieldRef: {fieldPath: "metadata.labels['batch.kubernetes.io/job-completion-index']"}}
- name: DDPLAUNCH_KEY
  valueFrom: {secretKeyRef: {name: {{ printf "%s-key" $name }}, key: key, optional: true}}
- name: DDPLAUNCH_UID
  valueFrom: {fieldRef: {fieldPath: "metadata.labels['batch.kubernetes.io/controller-uid']"}}
- name: DDPLAUNCH_ATTEMPT
  {{- if .Values.kubernetes.jobset }}
  valueFrom: {fieldRef: {fieldPath: "metadata.labels['jobset.sigs.k8s.io/restart-attempt']"}}
  {{- else }}
  value: "0"
  {{- end }}
- name: DDPLAUNCH_NAMESPACE
  valueFrom: {fieldRef: {fieldPath: "metadata.namespace"}}
- name: DDPLAUNCH_NAMES
  value: {{ printf "%s-{node}.%s" $node $rest | quote }}
- name: DDPLAUNCH_HUB
  value: {{ printf "%s-0.%s:%s" $node $rest (include "ddplaunch.hubPort" .) | quote }}
- name: DDPLAUNCH_MACHINE
  valueFrom: {fieldRef: {fieldPath: "spec.nodeName"}}
- name: DDPLAUNCH_TERMINATION
  value: /dev/termination-log
{{- with .Values.outputs }} {{- /* Each Job of a JobSet has its own uid. */}}
- {name: DDPLAUNCH_SUBMISSION, valueFrom: {fieldRef: {fieldPath: "metadata.labels['{{ ternary "jobset.sigs.k8s.io/jobset-uid" "batch.kubernetes.io/controller-uid" $.Values.kubernetes.jobset }}']"}}}{{ end }}
{{- end -}}

{{/* A limit on memory, which must not be exceeded, and none on CPU, which would only slow the ranks down. */}}
{{- define "ddplaunch.resources" -}}
{{- $asked := .Values.resources -}}
{{- $limits := dict -}}
{{- with $asked.memory }}{{ $_ := set $limits "memory" (include "ddplaunch.quantity" .) }}{{ end -}}
{{- with $asked.gpus }}{{ $_ := set $limits $.Values.kubernetes.gpu_resource (int . | toString) }}{{ end -}}
{{- if and $asked.rdma .Values.kubernetes.rdma_resource }}{{ $_ := set $limits .Values.kubernetes.rdma_resource (int $asked.rdma | toString) }}{{ end -}}
{{- $requests := merge dict $limits -}}
{{- with $asked.cpus -}}
{{- $thousandths := mulf . 1000 | ceil | int64 -}}
{{- $cores := ternary (printf "%dm" $thousandths) (printf "%d" (div $thousandths 1000)) (ne 0 (mod $thousandths 1000 | int)) -}}
{{- $_ := set $requests "cpu" $cores -}}
{{- end -}}
{{- if $requests -}}
resources:
  requests:
    {{- toYaml $requests | nindent 4 }}
  {{- with $limits }}
  limits:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}
{{- end -}}

{{- define "ddplaunch.ownFiles" -}}
- name: ddplaunch
  mountPath: /ddplaunch
{{- range concat (list "agent.pyz" "job.json") (ternary (list "source.tar") list (not (empty .Values.sourceArchive))) (keys (.files | default dict)) }}
- name: files
  mountPath: /ddplaunch/{{ . }}
  subPath: {{ . }}
  readOnly: true
{{- end }}
{{- end -}}
