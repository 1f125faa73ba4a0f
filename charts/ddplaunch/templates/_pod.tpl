{{/*
The pod, the same for every node of a job: hub, gate, then the trainer under its supervisor. The hub is a native sidecar,
so that it outlives both others, whatever kills them.
*/}}

{{/* A PodTemplateSpec, with what the job file wants merged over it. */}}
{{- define "ddplaunch.podTemplate" -}}
{{- $template := include "ddplaunch.renderedPod" . | fromYaml -}}
{{- with .Values.kubernetes.pod_template -}}
{{- $template = include "ddplaunch.overlay" (dict "original" $template "patch" . "path" "") | fromJson -}}
{{- end -}}
{{- toYaml $template -}}
{{- end -}}

{{- define "ddplaunch.renderedPod" -}}
metadata:
  {{- include "ddplaunch.podMetadata" . | nindent 2 }}
spec:
  {{- include "ddplaunch.podSpec" . | nindent 2 }}
{{- end -}}

{{- define "ddplaunch.podMetadata" -}}
labels:
  {{- include "ddplaunch.labels" . | nindent 2 }}
  sidecar.istio.io/inject: "false"
annotations:
  {{- include "ddplaunch.podAnnotations" . | nindent 2 }}
{{- end -}}

{{- define "ddplaunch.podAnnotations" -}}
{{- $annotations := dict
  "kubectl.kubernetes.io/default-container" "trainer"
  "sidecar.istio.io/inject" "false"
  "cluster-autoscaler.kubernetes.io/safe-to-evict" "false"
  "karpenter.sh/do-not-disrupt" "true"
-}}
{{- with .Values.kubernetes.networks }}{{ $_ := set $annotations "k8s.v1.cni.cncf.io/networks" (join ", " .) }}{{ end -}}
{{- /* Not by `merge`, which takes an empty text for nothing. */ -}}
{{- range $key, $value := .Values.kubernetes.annotations }}{{ $_ := set $annotations $key $value }}{{ end -}}
{{- merge $annotations (include "ddplaunch.annotations" . | fromYaml) | toYaml -}}
{{- end -}}

{{/* 90 seconds from SIGTERM to SIGKILL: the supervisor takes evidence, then ends torchrun, then the hub speaks. */}}
{{- define "ddplaunch.podSpec" -}}
{{- $options := .Values.kubernetes -}}
subdomain: {{ .Values.name | quote }}
restartPolicy: Never
terminationGracePeriodSeconds: 90
enableServiceLinks: false
automountServiceAccountToken: false
{{- with $options.service_account }}
serviceAccountName: {{ . | quote }}
{{- end }}
{{- with $options.priority_class }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- with $options.image_pull_secrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . | quote }}
  {{- end }}
{{- end }}
{{- with $options.node_selector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $options.tolerations }}
tolerations:
  {{- range . }}
  - operator: {{ .operator | default "Equal" }}
    {{- with .key }}
    key: {{ . | quote }}
    {{- end }}
    {{- if kindIs "string" .value }}
    value: {{ .value | quote }}
    {{- end }}
    {{- with .effect }}
    effect: {{ . }}
    {{- end }}
    {{- if kindIs "float64" .toleration_seconds }}
    tolerationSeconds: {{ int64 .toleration_seconds }}
    {{- end }}
  {{- end }}
{{- end }}
{{- if $options.host_network }}
hostNetwork: true
dnsPolicy: ClusterFirstWithHostNet
affinity: {{- /* On a machine's own network two nodes of a job would meet on one set of ports. */}}
  podAntiAffinity:
    requiredDuringSchedulingIgnoredDuringExecution:
      - topologyKey: kubernetes.io/hostname
        labelSelector:
          matchLabels:
            {{- include "ddplaunch.selector" . | nindent 12 }}
{{- end }}
topologySpreadConstraints:
  {{- include "ddplaunch.spread" . | nindent 2 }}
securityContext:
  seccompProfile:
    type: RuntimeDefault
  {{- if $options.restricted }}
  runAsNonRoot: true
  {{- end }}
  {{- if kindIs "float64" $options.run_as_user }}
  runAsUser: {{ int64 $options.run_as_user }}
  fsGroup: {{ int64 $options.run_as_user }}
  fsGroupChangePolicy: OnRootMismatch
  {{- end }}
initContainers:
  {{- include "ddplaunch.python" . | nindent 2 }}
  {{- include "ddplaunch.hub" . | nindent 2 }}
  {{- include "ddplaunch.gate" . | nindent 2 }}
containers:
  {{- include "ddplaunch.trainer" . | nindent 2 }}
volumes:
  {{- include "ddplaunch.volumes" . | nindent 2 }}
{{- end -}}

{{/* One node of the job on each machine, where that can be had; and what the job file wants. */}}
{{- define "ddplaunch.spread" -}}
{{- $host := dict "key" "kubernetes.io/hostname" "when_unsatisfiable" "ScheduleAnyway" -}}
{{- $wanted := list $host -}}
{{- with .Values.kubernetes.topology_spread -}}
{{- $wanted = ternary (list .) (list $host .) (eq .key $host.key) -}}
{{- end -}}
{{- $selector := include "ddplaunch.selector" . -}}
{{- range $wanted }}
- maxSkew: {{ .max_skew | default 1 | int }}
  topologyKey: {{ .key | quote }}
  whenUnsatisfiable: {{ .when_unsatisfiable | default "DoNotSchedule" }}
  labelSelector:
    matchLabels:
      {{- $selector | nindent 6 }}
{{- end }}
{{- end -}}

{{/* Without a size, /dev/shm may grow up to the memory of the pod; what a runtime gives is 64 MiB. */}}
{{- define "ddplaunch.volumes" -}}
- name: ddplaunch
  emptyDir: {}
- name: files
  {{- if .agentOf }}
  projected:
    sources:
      - configMap:
          name: {{ .Values.name | quote }}
      - configMap:
          name: {{ .agentOf | quote }}
          items:
            - key: agent.pyz
              path: agent.pyz
  {{- else }}
  configMap:
    name: {{ .Values.name | quote }}
  {{- end }}
- name: shm
  emptyDir:
    medium: Memory
    {{- with .Values.resources.shm }}
    sizeLimit: {{ include "ddplaunch.quantity" . | quote }}
    {{- end }}
{{- range .Values.volumes }}
- name: {{ .name | quote }}
  {{- if .claim }}
  persistentVolumeClaim:
    claimName: {{ .claim | quote }}
    {{- if .read_only }}
    readOnly: true
    {{- end }}
  {{- else if .host_path }}
  hostPath:
    path: {{ .host_path | quote }}
  {{- else }}
  emptyDir: {}
  {{- end }}
{{- end }}
{{- end -}}
