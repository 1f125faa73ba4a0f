{{/* The containers of a pod, all of the trainer's image: same resolver, same Python, same devices. */}}

{{/* Whether the agent can run in this image at all: a sidecar that cannot be started is tried for ever. */}}
{{- define "ddplaunch.python" -}}
- name: python
  {{- include "ddplaunch.agent" (list . "--version") | nindent 2 }}
  terminationMessagePolicy: FallbackToLogsOnError
  {{- include "ddplaunch.small" . | nindent 2 }}
{{- end -}}

{{- define "ddplaunch.hub" -}}
- name: hub
  {{- include "ddplaunch.agent" (list . "hub" "--folder" "/ddplaunch") | nindent 2 }}
  restartPolicy: Always
  env:
    {{- include "ddplaunch.environment" . | nindent 4 }}
  {{- include "ddplaunch.small" . | nindent 2 }}
{{- end -}}

{{/* What the agent needs for itself. It reads the volumes, for the job's Python may lie on one. */}}
{{- define "ddplaunch.small" -}}
resources:
  requests:
    cpu: 50m
    memory: 64Mi
  limits:
    memory: 512Mi
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

{{/* It sees what the trainer will see: devices are given to each container by itself. */}}
{{- define "ddplaunch.gate" -}}
{{- $capabilities := list -}}
{{- if .Values.resources.rdma }}{{ $capabilities = list "IPC_LOCK" }}{{ end -}}
- name: gate
  {{- include "ddplaunch.agent" (list . "gate" "--folder" "/ddplaunch") | nindent 2 }}
  terminationMessagePolicy: FallbackToLogsOnError
  {{- include "ddplaunch.resources" . | nindent 2 }}
  securityContext:
    {{- include "ddplaunch.security" $capabilities | nindent 4 }}
  env:
    {{- include "ddplaunch.environment" . | nindent 4 }}
  volumeMounts:
    {{- include "ddplaunch.ownFiles" . | nindent 4 }}
    {{- include "ddplaunch.mounts" . | nindent 4 }}
{{- end -}}

{{- define "ddplaunch.trainer" -}}
{{- $capabilities := list -}}
{{- /* RDMA pins memory, and containers may pin next to none without it. */ -}}
{{- if .Values.resources.rdma }}{{ $capabilities = append $capabilities "IPC_LOCK" }}{{ end -}}
{{- if eq .Values.watchdog.privileges "ptrace" }}{{ $capabilities = append $capabilities "SYS_PTRACE" }}{{ end -}}
- name: trainer
  {{- include "ddplaunch.agent" (list . "run" "--folder" "/ddplaunch") | nindent 2 }}
  terminationMessagePolicy: FallbackToLogsOnError
  {{- include "ddplaunch.resources" . | nindent 2 }}
  securityContext:
    {{- include "ddplaunch.security" $capabilities | nindent 4 }}
  env:
    {{- include "ddplaunch.environment" . | nindent 4 }}
    {{- range $name, $from := .Values.secrets }}
    - name: {{ $name }}
      valueFrom:
        secretKeyRef:
          name: {{ $from.secret.name | quote }}
          key: {{ $from.secret.key | quote }}
    {{- end }}
  volumeMounts:
    {{- include "ddplaunch.ownFiles" . | nindent 4 }}
    {{- include "ddplaunch.mounts" . | nindent 4 }}
{{- end -}}

{{/* Image and command, of a list of the root and the agent's words. Kubernetes replaces $(NAME) in commands. */}}
{{- define "ddplaunch.agent" -}}
{{- $values := (first .).Values -}}
image: {{ $values.image | quote }}
{{- with $values.kubernetes.image_pull_policy }}
imagePullPolicy: {{ . }}
{{- end }}
command:
  - {{ $values.python | replace "$(" "$$(" | quote }}
  - -I
  - -S
  - /ddplaunch/agent.pyz
  {{- toYaml (rest .) | nindent 2 }}
{{- end -}}

{{/* Of a list of capabilities, which are added to none. */}}
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
  valueFrom:
    fieldRef:
      fieldPath: metadata.labels['batch.kubernetes.io/job-completion-index']
- name: DDPLAUNCH_KEY
  valueFrom:
    secretKeyRef:
      name: {{ printf "%s-key" $name }}
      key: key
      optional: true
- name: DDPLAUNCH_UID
  valueFrom:
    fieldRef:
      fieldPath: metadata.labels['batch.kubernetes.io/controller-uid']
- name: DDPLAUNCH_ATTEMPT
  {{- if .Values.kubernetes.jobset }}
  valueFrom:
    fieldRef:
      fieldPath: metadata.labels['jobset.sigs.k8s.io/restart-attempt']
  {{- else }}
  value: "0"
  {{- end }}
- name: DDPLAUNCH_NAMESPACE
  valueFrom:
    fieldRef:
      fieldPath: metadata.namespace
- name: DDPLAUNCH_NAMES
  value: {{ printf "%s-{node}.%s" $node $rest | quote }}
- name: DDPLAUNCH_HUB
  value: {{ printf "%s-0.%s:%s" $node $rest (include "ddplaunch.hubPort" .) | quote }}
- name: DDPLAUNCH_MACHINE
  valueFrom:
    fieldRef:
      fieldPath: spec.nodeName
- name: DDPLAUNCH_TERMINATION
  value: /dev/termination-log
{{- end -}}

{{/* A limit on memory, which must not be overrun, and none on CPU, which only slows the ranks down. */}}
{{- define "ddplaunch.resources" -}}
{{- $asked := .Values.resources -}}
{{- $limits := dict -}}
{{- with $asked.memory }}{{ $_ := set $limits "memory" (include "ddplaunch.quantity" .) }}{{ end -}}
{{- with $asked.gpus }}{{ $_ := set $limits $.Values.kubernetes.gpu_resource (int . | toString) }}{{ end -}}
{{- with $asked.rdma }}{{ $_ := set $limits $.Values.kubernetes.rdma_resource (int . | toString) }}{{ end -}}
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
{{- range concat (list "agent.pyz" "plan.json") (ternary (list "source.tar") list (not (empty .Values.sourceArchive))) }}
- name: files
  mountPath: /ddplaunch/{{ . }}
  subPath: {{ . }}
  readOnly: true
{{- end }}
{{- end -}}

{{- define "ddplaunch.mounts" -}}
- name: shm
  mountPath: /dev/shm
{{- range .Values.volumes }}
- name: {{ .name | quote }}
  mountPath: {{ .mount_path | quote }}
  {{- if .read_only }}
  readOnly: true
  {{- end }}
{{- end }}
{{- end -}}
