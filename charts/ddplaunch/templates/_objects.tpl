{{/* All objects of a job, for the job itself and for its test. */}}

{{- define "ddplaunch.objects" -}}
{{- /* Comes before the pods, whose files it contains; nobody can change them under a running job. */ -}}
apiVersion: v1
kind: ConfigMap
metadata:
  {{- include "ddplaunch.metadata" . | nindent 2 }}
immutable: true
data:
  job.json: {{ include "ddplaunch.jobFile" . | quote }}
  {{- range $name, $text := .files }}
  {{ $name }}: {{ $text | quote }}
  {{- end }}
{{- if not .agentOf }}
binaryData:
  agent.pyz: {{ .Files.Get "files/agent.pyz" | b64enc }}
  {{- with .Values.sourceArchive }}
  source.tar: {{ regexReplaceAll "\\s" . "" }}
  {{- end }}
{{- end }}
---
{{- $ports := include "ddplaunch.ports" . | fromJson }}
apiVersion: v1
kind: Service
metadata:
  {{- include "ddplaunch.metadata" . | nindent 2 }}
spec: {{- /* The pods' names, from the moment they have addresses: the gate runs before any of them is ready. */}}
  clusterIP: None
  publishNotReadyAddresses: true
  ipFamilyPolicy: SingleStack
  selector:
    {{- include "ddplaunch.selector" . | nindent 4 }}
  {{- with $ports }}
  ports:
    {{- range $name, $port := . }}
    - name: {{ $name }}
      port: {{ $port }}
    {{- end }}
  {{- end }}
{{- if and (ne .Values.kubernetes.network_policy "none") (not .Values.kubernetes.host_network) }}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  {{- include "ddplaunch.metadata" . | nindent 2 }}
spec:
  {{- include "ddplaunch.networkPolicy" (list . $ports) | nindent 2 }}
{{- end }}
---
{{- $again := .Values.kubernetes.jobset }}
apiVersion: {{ ternary "jobset.x-k8s.io/v1alpha2" "batch/v1" $again }}
kind: {{ ternary "JobSet" "Job" $again }}
metadata:
  {{- include "ddplaunch.metadata" . | nindent 2 }}
    {{- range $name, $value := dict "queue-name" .Values.kubernetes.queue "priority-class" .Values.kubernetes.queue_priority }}
    {{- with $value }}
    kueue.x-k8s.io/{{ $name }}: {{ . | quote }}
    {{- end }}
    {{- end }}
spec:
  {{- if .Values.kubernetes.queue }}
  suspend: true
  {{- end }}
  {{- with .Values.kubernetes.ttl }}
  ttlSecondsAfterFinished: {{ include "ddplaunch.wholeSeconds" . }}
  {{- end }}
  {{- include (ternary "ddplaunch.jobset" "ddplaunch.job" $again) . | nindent 2 }}
{{- end -}}

{{/* The ports that are known beforehand, as JSON. 0: every node derives the hub's from the job's key. */}}
{{- define "ddplaunch.ports" -}}
{{- $hub := include "ddplaunch.hubPort" . | int -}}
{{- $store := .Values.rendezvous.port | default 0 | int -}}
{{- $ports := dict -}}
{{- if $hub }}{{ $_ := set $ports "hub" $hub }}{{ end -}}
{{- if not (has $store (list 0 $hub)) }}{{ $_ := set $ports "store" $store }}{{ end -}}
{{- toJson $ports -}}
{{- end -}}

{{- define "ddplaunch.hubPort" -}}
{{- $own := ternary 29401 29400 (eq 29400 (.Values.rendezvous.port | default 0 | int)) -}}
{{- .Values.gate.port | default (ternary 0 $own .Values.kubernetes.host_network) | int -}}
{{- end -}}

{{/* Who may reach the job's pods. Takes a list of the root and the job's own ports. */}}
{{- define "ddplaunch.networkPolicy" -}}
{{- $open := eq (first .).Values.kubernetes.network_policy "ports" -}}
{{- $pods := dict "podSelector" (dict "matchLabels" (include "ddplaunch.selector" (first .) | fromYaml)) | toYaml -}}
{{ $pods }}
policyTypes: {{ ternary "[Ingress]" "[Ingress, Egress]" $open }}
ingress:
  - from:
      - {{- $pods | nindent 8 }}
{{- if $open }}
{{- /* All ports but the job's own stay open to everybody, as they are without a policy. */}}
  - ports:
      {{- $hub := (last .).hub | default 0 | int }}
      {{- $store := (last .).store | default $hub | int }}
      {{- $before := 0 }}
      {{- range $closed := list (min $hub $store) (max $hub $store) 65536 }}
      {{- if gt (sub $closed $before) 1 }}
      - {protocol: TCP, port: {{ add $before 1 }}, endPort: {{ sub $closed 1 }}}
      {{- end }}
      {{- $before = $closed }}
      {{- end }}
      - {protocol: UDP, port: 1, endPort: 65535}
{{- else }}
{{- /* All ports between the job's pods, because NCCL and Gloo take any; and name resolution. */}}
egress:
  - to:
      - {{- $pods | nindent 8 }}
  - ports: [{port: 53, protocol: UDP}, {port: 53, protocol: TCP}]
{{- end }}
{{- end -}}

{{/* One pod per node, each with its index, and none of them is ever replaced alone. */}}
{{- define "ddplaunch.job" -}}
{{- $again := .Values.kubernetes.jobset -}}
{{- $stopped := or .Values.kubernetes.queue (and $again (gt (int .Values.retries) 0)) }} {{- /* When another pod is evicted, or the queue suspends the job. */}}
{{- $passed := concat (list 0) (ternary (list 20) list $again) (ternary (list 50) list (and $again .Values.retry_hangs)) (ternary (list 60) list (not (empty $stopped))) -}}
completionMode: Indexed
completions: {{ int .Values.nodes }}
parallelism: {{ int .Values.nodes }}
backoffLimit: 0
{{- with .Values.kubernetes.active_deadline }}
activeDeadlineSeconds: {{ include "ddplaunch.wholeSeconds" . }}{{ end }}
podReplacementPolicy: Failed
{{- if .Values.min_nodes }} {{- /* Node 0's pod succeeds when those of all nodes that have started have ended; the others may never come. */}}
successPolicy: {rules: [{succeededIndexes: "0"}]}{{ end }}
podFailurePolicy:
  rules:
    {{- if .Values.min_nodes }} {{- /* A pod that is stopped at the gate gets another one. */}}
    - {action: Ignore, onExitCodes: {containerName: gate, operator: In, values: [61]}}{{ end }}
    {{- /* A failure that is only counted fails the Job by its backoffLimit, and a JobSet then starts it again. */}}
    - action: {{ ternary "Count" "FailJob" $again }}
      onPodConditions: [{type: DisruptionTarget, status: "True"}]
    {{- range list "python" "gate" "trainer" }}
    - {action: FailJob, onExitCodes: {containerName: {{ . }}, operator: NotIn, values: {{ toJson $passed }}}}{{ end }}
template:
  {{- include "ddplaunch.podTemplate" . | nindent 2 }}
{{- end -}}

{{/* A Job that is started again as a whole when a node or the network was at fault. */}}
{{- define "ddplaunch.jobset" -}}
network:
  enableDNSHostnames: false {{- /* The Service is ours: the pods need it before they are ready. */}}
failurePolicy:
  maxRestarts: {{ int .Values.retries }}
  restartStrategy: BlockingRecreate {{- /* No pod of a new attempt is made before the last of the old one is gone. */}}
  rules:
    - action: FailJobSet
      onJobFailureReasons: [PodFailurePolicy, DeadlineExceeded]
replicatedJobs:
  - name: node
    replicas: 1
    template:
      metadata:
        labels:
          {{- include "ddplaunch.labels" . | nindent 10 }}
        annotations:
          {{- include "ddplaunch.annotations" . | nindent 10 }}
      spec:
        {{- include "ddplaunch.job" . | nindent 8 }}
{{- end -}}
