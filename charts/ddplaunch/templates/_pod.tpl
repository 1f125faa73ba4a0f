{{/*
The pod, the same for every node of a job: hub, gate, then the trainer under its supervisor. The hub is a native sidecar,
so that it outlives both others, whatever kills them.
*/}}

{{/* A PodTemplateSpec, with the job file's pod template merged over it. */}}
{{- define "ddplaunch.podTemplate" -}}
{{- $template := include "ddplaunch.renderedPod" . | fromYaml -}}
{{- $keys := .Files.Get "files/keys.json" | fromJson -}}
{{- $merge := dict "original" $template "patch" .Values.kubernetes.pod_template "path" "" "keys" $keys -}}
{{- $template = include "ddplaunch.merge" $merge | fromJson -}}
{{- if ne "gate" (last $template.spec.initContainers).name -}}
{{- fail "\n\nkubernetes.pod_template.spec.initContainers: found a change that breaks the gate, wanted gate as the last\n  hint: the others wait for everything that runs after the gate: put yours before it, and hub before both" -}}
{{- end -}}
{{- toYaml $template -}}
{{- end -}}

{{- define "ddplaunch.renderedPod" -}}
metadata:
  labels:
    {{- include "ddplaunch.labels" . | nindent 4 }}
    sidecar.istio.io/inject: "false"
  annotations:
    {{- include "ddplaunch.podAnnotations" . | nindent 4 }}
spec:
  {{- include "ddplaunch.podSpec" . | nindent 2 }}
{{- end -}}

{{- define "ddplaunch.podAnnotations" -}}
{{- $annotations := dict
  "kubectl.kubernetes.io/default-container" "trainer"
  "sidecar.istio.io/inject" "false"
  "cluster-autoscaler.kubernetes.io/safe-to-evict" "false"
  "karpenter.sh/do-not-disrupt" "true"
-}}
{{- with .Values.outputs }}{{ $_ := set $annotations "ddplaunch/outputs" (printf "%s/%s" .volume (.path | default "" | trimAll "/")) }}{{ end -}}
{{- with .Values.kubernetes.networks }}{{ $_ := set $annotations "k8s.v1.cni.cncf.io/networks" (join ", " .) }}{{ end -}}
{{- range $how, $label := .Values.kubernetes.topology }}{{ with $label }}{{ $_ := set $annotations (printf "kueue.x-k8s.io/podset-%s-topology" $how) . }}{{ end }}{{ end -}}
{{- /* Not by `merge`, which ignores an empty text. */ -}}
{{- range $key, $value := .Values.kubernetes.annotations }}{{ $_ := set $annotations $key $value }}{{ end -}}
{{- merge $annotations (include "ddplaunch.annotations" . | fromYaml) | toYaml -}}
{{- end -}}

{{/* 90 s from SIGTERM to SIGKILL: evidence first, then torchrun's end, then the hub's report; before these, `signal`. */}}
{{- define "ddplaunch.podSpec" -}}
{{- $options := .Values.kubernetes -}}
subdomain: {{ .Values.name | quote }}
restartPolicy: Never
terminationGracePeriodSeconds: {{ with .Values.signal }}{{ include "ddplaunch.wholeSeconds" .before | int64 | add 90 }}{{ else }}90{{ end }}
enableServiceLinks: false
automountServiceAccountToken: false
{{- $asked := dict
  "serviceAccountName" ($options.service_account | default (ternary .Values.name "" (not (empty .Values.createRole)))) "priorityClassName" $options.priority_class
  "hostNetwork" $options.host_network "dnsPolicy" (ternary "ClusterFirstWithHostNet" "" $options.host_network)
  "affinity" (include "ddplaunch.affinity" . | fromJson) "nodeSelector" (deepCopy $options.node_selector) "imagePullSecrets" list
-}}
{{- if and .Values.resources.gpu_type (hasKey $options.node_selector $options.gpu_type_label) }}{{ fail (printf "\n\nkubernetes.node_selector: found %s, wanted resources.gpu_type alone\n  hint: both choose the GPU type" $options.gpu_type_label) }}{{ end }}
{{- with .Values.resources.gpu_type }}{{ $_ := set $asked.nodeSelector $options.gpu_type_label . }}{{ end }}
{{- range $options.image_pull_secrets }}{{ $_ := set $asked "imagePullSecrets" (append $asked.imagePullSecrets (dict "name" .)) }}{{ end }}
{{- range $key, $value := $asked }}{{ if $value }}
{{ $key }}: {{ toJson $value }}
{{- end }}{{ end }}
{{- with $options.tolerations }}
tolerations:
  {{- range . }}
  {{- $toleration := dict "operator" (.operator | default "Equal") }}
  {{- range $key, $value := omit . "operator" }}
  {{- if not (kindIs "invalid" $value) }}{{ $_ := set $toleration ($key | replace "_s" "S") $value }}{{ end }}
  {{- end }}
  - {{- toYaml $toleration | nindent 4 }}
  {{- end }}
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
  {{- /* Finds out whether the agent can run in this image at all: a sidecar that cannot start is tried for ever. */}}
  {{- include "ddplaunch.agent" (list . "python" "--version") | nindent 2 }}
    terminationMessagePolicy: FallbackToLogsOnError
    {{- include "ddplaunch.small" . | nindent 4 }}
  {{- include "ddplaunch.agent" (list . "hub" "hub" "--folder" "/ddplaunch") | nindent 2 }}
    restartPolicy: Always
    env:
      {{- include "ddplaunch.environment" . | nindent 6 }}
      {{- include "ddplaunch.webhooks" . | nindent 6 }}
    {{- include "ddplaunch.small" . | nindent 4 }}
      {{- if include "ddplaunch.events" . }}
      - {name: service-account, mountPath: /var/run/secrets/kubernetes.io/serviceaccount, readOnly: true}
      {{- end }}
  {{- /* It sees what the trainer will see: devices are given to each container separately. */}}
  {{- include "ddplaunch.agent" (list . "gate" "gate" "--folder" "/ddplaunch") | nindent 2 }}
    {{- include "ddplaunch.large" (list . dict list) | nindent 4 }}
containers:
  {{- include "ddplaunch.agent" (list . "trainer" "run" "--folder" "/ddplaunch") | nindent 2 }}
    {{- $capabilities := ternary (list "SYS_PTRACE") list (eq .Values.watchdog.privileges "ptrace") }}
    {{- include "ddplaunch.large" (list . .Values.secrets $capabilities) | nindent 4 }}
volumes:
  {{- include "ddplaunch.volumes" . | nindent 2 }}
{{- end -}}

{{/* The addresses of webhooks; and if there are any, a resolver that gives up soon: half of the cluster may be cut off. */}}
{{- define "ddplaunch.webhooks" -}}
{{- $addresses := list -}}
{{- range $index, $each := .Values.notify }}{{ with ($each.webhook | default dict).secret -}}
{{- $key := dict "name" .name "key" .key "optional" true -}}
{{- $addresses = append $addresses (dict "name" (printf "DDPLAUNCH_WEBHOOK_%d" $index) "valueFrom" (dict "secretKeyRef" $key)) -}}
{{- end }}{{ end -}}
{{- with $addresses }}{{ append . (dict "name" "RES_OPTIONS" "value" "timeout:1 attempts:1") | toYaml }}{{ end -}}
{{- end -}}

{{/* Whether the hub makes Events: any text, or none. */}}
{{- define "ddplaunch.events" }}{{ range .Values.notify }}{{ if .events }}yes{{ end }}{{ end }}{{ end -}}

{{/* The user's, and one of ours: on a machine's own network two nodes of a job would collide on the same ports. */}}
{{- define "ddplaunch.affinity" -}}
{{- $affinity := deepCopy .Values.kubernetes.affinity -}}
{{- if or .Values.kubernetes.host_network .Values.kubernetes.one_per_machine -}}
{{- $selector := dict "matchLabels" (include "ddplaunch.selector" . | fromYaml) -}}
{{- $others := $affinity.podAntiAffinity | default dict -}}
{{- $key := "requiredDuringSchedulingIgnoredDuringExecution" -}}
{{- $terms := prepend (get $others $key | default list) (dict "topologyKey" "kubernetes.io/hostname" "labelSelector" $selector) -}}
{{- $_ := set $affinity "podAntiAffinity" (set $others $key $terms) -}}
{{- end -}}
{{- toJson $affinity -}}
{{- end -}}

{{/* One node of the job on each machine, if possible; and what the job file wants. */}}
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

{{/* Without a size, /dev/shm may grow up to the memory of the pod; a runtime gives it 64 MiB. */}}
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
          items: [{key: agent.pyz, path: agent.pyz}]
  {{- else }}
  configMap:
    name: {{ .Values.name | quote }}
  {{- end }}
- name: shm
  emptyDir: {medium: Memory{{ with .Values.resources.shm }}, sizeLimit: {{ include "ddplaunch.quantity" . | quote }}{{ end }}}
{{- if include "ddplaunch.events" . }}
- name: service-account
  projected:
    sources:
      - serviceAccountToken: {path: token, expirationSeconds: 3600}
      - configMap: {name: kube-root-ca.crt, items: [{key: ca.crt, path: ca.crt}], optional: true}
{{- end }}
{{- range .Values.volumes }}
- name: {{ .name | quote }}
  {{- if .claim }}
  persistentVolumeClaim: {claimName: {{ .claim | quote }}{{ if .read_only }}, readOnly: true{{ end }}}
  {{- else if .host_path }}
  hostPath: {path: {{ .host_path | quote }}}
  {{- else }}
  emptyDir: {}
  {{- end }}
{{- end }}
{{- end -}}
