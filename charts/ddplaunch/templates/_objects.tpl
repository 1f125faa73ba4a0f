{{/* What stands below the metadata of the objects: for the job itself, and for its test. */}}

{{/* The files that travel with the job. */}}
{{- define "ddplaunch.files" -}}
immutable: true
data:
  {{- $plan := include "ddplaunch.plan" . }}
  {{- /* Control characters survive in quotes alone. */}}
  {{- if regexMatch "[^\\PC\\n]" $plan }}
  plan.json: {{ $plan | quote }}
  {{- else }}
  plan.json: |
    {{- $plan | nindent 4 }}
  {{- end }}
{{- if not .agentOf }}
binaryData:
  agent.pyz: {{ .Files.Get "files/agent.pyz" | b64enc }}
  {{- with .Values.sourceArchive }}
  source.tar: {{ regexReplaceAll "\\s" . "" }}
  {{- end }}
{{- end }}
{{- end -}}

{{/* The pods' names, from the moment they have addresses: the gate runs before any of them is ready. */}}
{{- define "ddplaunch.service" -}}
{{- $hub := include "ddplaunch.hubPort" . | int -}}
clusterIP: None
publishNotReadyAddresses: true
ipFamilyPolicy: SingleStack
selector:
  {{- include "ddplaunch.selector" . | nindent 2 }}
{{- if or $hub .Values.rendezvous.port }}
ports:
  {{- if $hub }}
  - name: hub
    port: {{ $hub }}
  {{- end }}
  {{- with .Values.rendezvous.port }}
  - name: store
    port: {{ int . }}
  {{- end }}
{{- end }}
{{- end -}}

{{/* Who reaches the job's pods. */}}
{{- define "ddplaunch.networkPolicy" -}}
podSelector:
  matchLabels:
    {{- include "ddplaunch.selector" . | nindent 4 }}
policyTypes: {{ ternary "[Ingress]" "[Ingress, Egress]" (eq .Values.kubernetes.network_policy "ports") }}
ingress:
  - from:
      - podSelector:
          matchLabels:
            {{- include "ddplaunch.selector" . | nindent 12 }}
{{- if eq .Values.kubernetes.network_policy "ports" }}
{{- /* All ports but the job's own stay open to everybody, as they are without a policy. */}}
  - ports:
      {{- $hub := include "ddplaunch.hubPort" . | int }}
      {{- $store := .Values.rendezvous.port | default $hub | int }}
      {{- $before := 0 }}
      {{- range $closed := list (min $hub $store) (max $hub $store) 65536 }}
      {{- if gt (sub $closed $before) 1 }}
      - protocol: TCP
        port: {{ add $before 1 }}
        endPort: {{ sub $closed 1 }}
      {{- end }}
      {{- $before = $closed }}
      {{- end }}
      - protocol: UDP
        port: 1
        endPort: 65535
{{- else }}
{{- /* All ports between the job's pods, for NCCL and Gloo take any; and names. */}}
egress:
  - to:
      - podSelector:
          matchLabels:
            {{- include "ddplaunch.selector" . | nindent 12 }}
  - ports:
      - port: 53
        protocol: UDP
      - port: 53
        protocol: TCP
{{- end }}
{{- end -}}

{{/* One pod per node, each with its index, and none of them ever replaced alone. */}}
{{- define "ddplaunch.job" -}}
{{- $again := .Values.kubernetes.jobset -}}
completionMode: Indexed
completions: {{ int .Values.nodes }}
parallelism: {{ int .Values.nodes }}
backoffLimit: 0
{{- with .Values.kubernetes.active_deadline }}
activeDeadlineSeconds: {{ include "ddplaunch.wholeSeconds" . }}
{{- end }}
podReplacementPolicy: Failed
podFailurePolicy:
  rules:
    {{- /* What is only counted fails the Job by its backoffLimit, on which a JobSet starts it again. */}}
    - action: {{ ternary "Count" "FailJob" $again }}
      onPodConditions:
        - type: DisruptionTarget
          status: "True"
    {{- range list "python" "gate" "trainer" }}
    - action: FailJob
      onExitCodes:
        containerName: {{ . }}
        operator: NotIn
        values: {{ ternary "[0, 20]" "[0]" $again }}
    {{- end }}
template:
  {{- include "ddplaunch.podTemplate" . | nindent 2 }}
{{- end -}}

{{/* A Job that is started again as a whole when a node or the network was at fault. */}}
{{- define "ddplaunch.jobset" -}}
network:
  enableDNSHostnames: false {{- /* The Service is ours: the pods need it before they are ready. */}}
failurePolicy:
  maxRestarts: {{ int .Values.retries }}
  restartStrategy: BlockingRecreate {{- /* No pod of a new attempt before the last of the old one is gone. */}}
  rules:
    - action: FailJobSet
      onJobFailureReasons: [PodFailurePolicy]
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
