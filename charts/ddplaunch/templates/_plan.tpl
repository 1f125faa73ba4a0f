{{/* What every node is told, for all targets alike: plan.json, which the agent reads. */}}

{{/* The bytes of plan.json; their hash is among the annotations, so they have to be the launcher's own. */}}
{{- define "ddplaunch.plan" -}}
{{- $spec := .Values -}}
{{- $plan := dict
  "version" 1
  "job" $spec.name
  "nodes" $spec.nodes
  "nproc_per_node" $spec.nproc_per_node
  "launch" (include "ddplaunch.launch" . | fromJsonArray)
  "command" $spec.command
  "python" $spec.python
  "names" list
  "platform" "kubernetes"
  "mpi" false
  "max_restarts" $spec.rendezvous.max_restarts
  "retries" $spec.retries
  "env" $spec.env
  "gate" (include "ddplaunch.plan.gate" . | fromJson)
  "watchdog" (include "ddplaunch.plan.watchdog" . | fromJson)
  "resources" (include "ddplaunch.plan.resources" . | fromJson)
-}}
{{- with $spec.rendezvous.address }}{{ $_ := set $plan "master_addr" . }}{{ end -}}
{{- with $spec.rendezvous.port }}{{ $_ := set $plan "master_port" . }}{{ end -}}
{{- with $spec.workdir }}{{ $_ := set $plan "workdir" . }}{{ end -}}
{{- /* The value of a Secret is a variable of the container, under the name that the ranks shall see. */ -}}
{{- $secrets := dict -}}
{{- range $name, $_ := $spec.secrets }}{{ $_ := set $secrets $name (dict "env" $name) }}{{ end -}}
{{- $_ := set $plan "secrets" $secrets -}}
{{- printf "%s\n" (toPrettyJson $plan) -}}
{{- end -}}

{{- define "ddplaunch.plan.gate" -}}
{{- $gate := .Values.gate -}}
{{- $plan := dict "enabled" $gate.enabled "skip" $gate.skip "joined" false -}}
{{- /* Nodes pull their images at different speeds. */ -}}
{{- $_ := set $plan "timeout" (include "ddplaunch.seconds" ($gate.timeout | default "10m") | float64) -}}
{{- $_ := set $plan "port" (include "ddplaunch.hubPort" . | int) -}}
{{- with $gate.interface }}{{ $_ := set $plan "interface" . }}{{ end -}}
{{- if $gate.smoke_test }}{{ $_ := set $plan "smoke_test" true }}{{ end -}}
{{- toJson $plan -}}
{{- end -}}

{{- define "ddplaunch.plan.watchdog" -}}
{{- $watchdog := .Values.watchdog -}}
{{- $plan := dict "privileges" $watchdog.privileges "kill_after" nil -}}
{{- $_ := set $plan "notice_after" (include "ddplaunch.seconds" $watchdog.notice_after | float64) -}}
{{- if ne (toString $watchdog.kill_after) "never" -}}
{{- $_ := set $plan "kill_after" (include "ddplaunch.seconds" $watchdog.kill_after | float64) -}}
{{- end -}}
{{- toJson $plan -}}
{{- end -}}

{{- define "ddplaunch.plan.resources" -}}
{{- $asked := .Values.resources -}}
{{- $plan := dict -}}
{{- range $key := list "gpus" "cpus" "rdma" -}}
{{- if hasKey $asked $key }}{{ $_ := set $plan $key (get $asked $key) }}{{ end -}}
{{- end -}}
{{- range $key := list "memory" "shm" -}}
{{- if hasKey $asked $key }}{{ $_ := set $plan $key (include "ddplaunch.bytes" (get $asked $key) | int64) }}{{ end -}}
{{- end -}}
{{- toJson $plan -}}
{{- end -}}

{{/*
The words before the user's command, which torchrun consists of; the agent fills in what stands in braces. is_host is
said outright, because torchrun's own guess compares host names and is often wrong.
*/}}
{{- define "ddplaunch.launch" -}}
{{- $meet := .Values.rendezvous -}}
{{- $seconds := include "ddplaunch.roundedSeconds" $meet.timeout -}}
{{- $words := list "{python}" "-m" "torch.distributed.run"
  (printf "--nnodes=%d" (int .Values.nodes))
  (printf "--nproc-per-node=%d" (int .Values.nproc_per_node))
  (printf "--max-restarts=%d" (int $meet.max_restarts))
-}}
{{- if eq $meet.backend "static" -}}
{{- $words = concat $words (list "--node-rank={node}" "--master-addr={master_addr}" "--master-port={master_port}"
  (printf "--rdzv-conf=timeout=%s" $seconds)) -}}
{{- else -}}
{{- $words = concat $words (list "--rdzv-backend=c10d" "--rdzv-endpoint={master_addr}:{master_port}"
  "--rdzv-id={run_id}" (printf "--rdzv-conf=join_timeout=%s,is_host={is_host}" $seconds)) -}}
{{- end -}}
{{- $script := first .Values.command -}}
{{- if not (or (eq $script "-m") (hasSuffix ".py" $script)) }}{{ $words = append $words "--no-python" }}{{ end -}}
{{- toJson $words -}}
{{- end -}}

{{/* 0: every node derives the same port from the job's key, for on a machine's own network jobs meet. */}}
{{- define "ddplaunch.hubPort" -}}
{{- $store := .Values.rendezvous.port | default 0 | int -}}
{{- if .Values.gate.port }}{{ int .Values.gate.port }}
{{- else if .Values.kubernetes.host_network }}0
{{- else if eq $store 29400 }}29401
{{- else }}29400
{{- end -}}
{{- end -}}
