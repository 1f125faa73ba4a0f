{{/* What Kubernetes would refuse, and mostly late: when the job stands already and its pods do not come. */}}

{{- define "ddplaunch.limits.job" -}}
{{- $options := .Values.kubernetes -}}
{{- if not .Values.image -}}
{{- include "ddplaunch.problem" (list "image" "no image" "the trainer's image" "pods run in it: python 3.9 or newer, and torch") -}}
{{- else -}}
{{- with include "ddplaunch.name.image" .Values.image -}}
{{- include "ddplaunch.problem" (list "image" ($.Values.image | quote) . "the repository is in lower case, the tag comes last") -}}
{{- end -}}
{{- end -}}
{{- if eq .Values.launch "mpi" -}}
{{- include "ddplaunch.problem" (list "launch" "mpi" "torchrun for --to kubernetes"
  "mpirun needs a way to start processes in other pods; on Kubernetes ddplaunch has torchrun only") -}}
{{- end -}}
{{- if and .Values.gate.smoke_test (eq .Values.launch "mpi") -}}
{{- include "ddplaunch.problem" (list "gate.smoke_test" "true" "false with launch: mpi" "it tries torch's backends") -}}
{{- end -}}
{{- if and .Values.retries (not $options.jobset) -}}
{{- include "ddplaunch.problem" (list "retries" (int .Values.retries | toString) "0, or kubernetes.jobset"
  "a Job replaces single pods, not the gang: set kubernetes.jobset: true, which needs JobSet") -}}
{{- end -}}
{{- if and $options.host_network (eq $options.network_policy "pods") -}}
{{- include "ddplaunch.problem" (list "kubernetes.network_policy" "pods with host_network" "none"
  "a NetworkPolicy says nothing about pods on a machine's own network: leave one of the two out") -}}
{{- end -}}
{{- if and $options.active_deadline (ne (toString .Values.watchdog.kill_after) "never") -}}
{{- $deadline := include "ddplaunch.seconds" $options.active_deadline | float64 -}}
{{- $kill := include "ddplaunch.seconds" .Values.watchdog.kill_after | float64 -}}
{{- if ge $kill $deadline -}}
{{- include "ddplaunch.problem" (list "kubernetes.active_deadline" (include "ddplaunch.duration" $deadline)
  (printf "more than watchdog.kill_after, which is %s" (include "ddplaunch.duration" $kill))
  "a job that hangs would be ended before the watchdog says why: shorten watchdog.kill_after") -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Names that Kubernetes makes of the job's. */}}
{{- define "ddplaunch.limits.names" -}}
{{- $options := .Values.kubernetes -}}
{{- $name := .Values.name -}}
{{- $last := sub (int .Values.nodes) 1 | toString -}}
{{- if $options.jobset -}}
{{- $room := sub 63 (len (printf "-node-0-%s-xxxxx" $last)) -}}
{{- if gt (len $name) (int $room) -}}
{{- include "ddplaunch.problem" (list "name" (printf "%d characters" (len $name))
  (printf "at most %d with kubernetes.jobset and %d nodes" $room (int .Values.nodes)) "a JobSet makes longer names of its pods than a Job") -}}
{{- end -}}
{{- end -}}
{{- with $options.queue -}}
{{- if gt (len .) 63 -}}
{{- include "ddplaunch.problem" (list "kubernetes.queue" (printf "%d characters" (len .)) "at most 63"
  "Kueue reads it from a label, and a label's value is no longer") -}}
{{- end -}}
{{- end -}}
{{- $node := printf (ternary "%s-node-0-%s" "%s-%s" $options.jobset) $name $last -}}
{{- $namespace := $options.namespace | default (repeat 63 "x") -}}
{{- $full := printf "%s.%s.%s.svc.%s" $node $name $namespace ($options.cluster_domain | default "") | len -}}
{{- if gt $full 253 -}}
{{- include "ddplaunch.problem" (list "kubernetes.cluster_domain" (printf "a name of %d characters for a node" $full) "at most 253"
  "no resolver takes a longer one") -}}
{{- end -}}
{{- end -}}

{{- define "ddplaunch.limits.resources" -}}
{{- $asked := .Values.resources -}}
{{- $options := .Values.kubernetes -}}
{{- $gpus := $asked.gpus | default 0 | int -}}
{{- if and $gpus (lt $gpus (int .Values.nproc_per_node)) -}}
{{- include "ddplaunch.problem" (list "resources.gpus" (toString $gpus)
  (printf "at least nproc_per_node, which is %d" (int .Values.nproc_per_node))
  "one GPU for each rank; gpus: 0 says that the ranks need none") -}}
{{- end -}}
{{- if and $asked.shm $asked.memory -}}
{{- $shm := include "ddplaunch.bytes" $asked.shm | int64 -}}
{{- $memory := include "ddplaunch.bytes" $asked.memory | int64 -}}
{{- $memorySize := include "ddplaunch.quantity" $asked.memory -}}
{{- if gt $shm $memory -}}
{{- include "ddplaunch.problem" (list "resources.shm" (include "ddplaunch.quantity" $asked.shm)
  (printf "at most resources.memory, which is %s" $memorySize)
  "what lies in /dev/shm counts as memory: a job that filled it would be killed") -}}
{{- else if eq $shm $memory -}}
{{- include "ddplaunch.problem" (list "resources.shm" (include "ddplaunch.quantity" $asked.shm)
  (printf "less than resources.memory, which is %s" $memorySize)
  "what lies in /dev/shm counts as the pod's memory: a job that filled it would be killed") -}}
{{- end -}}
{{- end -}}
{{- if and $asked.rdma (not $options.rdma_resource) -}}
{{- include "ddplaunch.problem" (list "kubernetes.rdma_resource" "nothing" "the name of what resources.rdma counts"
  "kubectl describe node shows what the device plugin offers, such as rdma/hca") -}}
{{- end -}}
{{- range $key := list "gpu_resource" "rdma_resource" -}}
{{- with get $options $key -}}
{{- $value := . -}}
{{- with include "ddplaunch.name.resource" $value -}}
{{- include "ddplaunch.problem" (list (printf "kubernetes.%s" $key) ($value | quote) . "") -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "ddplaunch.limits.volumes" -}}
{{- range $index, $volume := .Values.volumes -}}
{{- $at := printf "volumes[%d]" $index -}}
{{- if has .name (list "ddplaunch" "files" "shm") -}}
{{- include "ddplaunch.problem" (list (printf "%s.name" $at) .name "another name" "every pod of ddplaunch has a volume of this name") -}}
{{- end -}}
{{- $mount := printf "%s.mount_path" $at -}}
{{- $path := regexReplaceAll "/+$" .mount_path "" -}}
{{- if eq $path "/dev/shm" -}}
{{- include "ddplaunch.problem" (list $mount $path "another folder" "every pod has memory there; set its size by resources.shm") -}}
{{- else if or (eq $path "/ddplaunch") (hasPrefix "/ddplaunch/" $path) -}}
{{- include "ddplaunch.problem" (list $mount $path "another folder" "ddplaunch's own files lie there") -}}
{{- else if eq $path "" -}}
{{- include "ddplaunch.problem" (list $mount "/" "a folder below /" "it would hide the whole image") -}}
{{- end -}}
{{- if contains ":" $path -}}
{{- include "ddplaunch.problem" (list $mount $path "a path without ':'" "Kubernetes takes none") -}}
{{- end -}}
{{- if has ".." (splitList "/" (.host_path | default "")) -}}
{{- include "ddplaunch.problem" (list (printf "%s.host_path" $at) "a path with '..'" "the folder's full path" "Kubernetes takes none") -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Labels, annotations and selectors. */}}
{{- define "ddplaunch.limits.keys" -}}
{{- $options := .Values.kubernetes -}}
{{- $own := dict "job-name" "it is Kubernetes' own" "controller-uid" "it is Kubernetes' own"
  "kueue.x-k8s.io/queue-name" "set kubernetes.queue" "k8s.v1.cni.cncf.io/networks" "set kubernetes.networks" -}}
{{- range $section := list "labels" "annotations" -}}
{{- range $key, $_ := get $options $section -}}
{{- if or (hasKey $own $key) (regexMatch "^(app\\.kubernetes\\.io|batch\\.kubernetes\\.io|ddplaunch|jobset\\.sigs\\.k8s\\.io)/" $key) -}}
{{- include "ddplaunch.problem" (list (printf "kubernetes.%s" $section) (printf "%s, which is set already" $key) "a key of your own"
  (get $own $key | default "")) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $section := list "labels" "node_selector" "annotations" -}}
{{- range $key, $value := get $options $section -}}
{{- with include "ddplaunch.name.key" $key -}}
{{- include "ddplaunch.problem" (list (printf "kubernetes.%s" $section) (printf "the key %s" ($key | quote)) . "") -}}
{{- end -}}
{{- if ne $section "annotations" -}}
{{- with include "ddplaunch.name.labelValue" $value -}}
{{- include "ddplaunch.problem" (list (printf "kubernetes.%s.%s" $section $key) ($value | quote) . "") -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "ddplaunch.limits.scheduling" -}}
{{- $options := .Values.kubernetes -}}
{{- range $index, $toleration := $options.tolerations -}}
{{- $at := printf "kubernetes.tolerations[%d]" $index -}}
{{- if .key -}}
{{- with include "ddplaunch.name.key" .key -}}
{{- include "ddplaunch.problem" (list (printf "%s.key" $at) ($toleration.key | quote) . "") -}}
{{- end -}}
{{- end -}}
{{- with include "ddplaunch.name.labelValue" (.value | default "") -}}
{{- include "ddplaunch.problem" (list (printf "%s.value" $at) ($toleration.value | quote) . "") -}}
{{- end -}}
{{- end -}}
{{- with $options.topology_spread -}}
{{- with include "ddplaunch.name.key" .key -}}
{{- include "ddplaunch.problem" (list "kubernetes.topology_spread.key" ($options.topology_spread.key | quote) . "") -}}
{{- end -}}
{{- end -}}
{{- range $index, $network := $options.networks -}}
{{- with include "ddplaunch.name.network" $network -}}
{{- include "ddplaunch.problem" (list (printf "kubernetes.networks[%d]" $index) ($network | quote) . "") -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* What the `restricted` Pod Security Standard forbids, so that no pod would ever be made. */}}
{{- define "ddplaunch.limits.restricted" -}}
{{- if .Values.kubernetes.restricted -}}
{{- $found := list -}}
{{- $hint := "leave it out, or set kubernetes.restricted: false" -}}
{{- if eq .Values.watchdog.privileges "ptrace" -}}
{{- $found = append $found (list "watchdog.privileges" "ptrace, which is the capability SYS_PTRACE" $hint) -}}
{{- end -}}
{{- if .Values.resources.rdma -}}
{{- $found = append $found (list "resources.rdma" "RDMA, which needs the capability IPC_LOCK" $hint) -}}
{{- end -}}
{{- if .Values.kubernetes.host_network -}}
{{- $found = append $found (list "kubernetes.host_network" "true" $hint) -}}
{{- end -}}
{{- range $index, $volume := .Values.volumes -}}
{{- if .host_path }}{{ $found = append $found (list (printf "volumes[%d].host_path" $index) "a folder of the machine" $hint) }}{{ end -}}
{{- end -}}
{{- range $found -}}
{{- include "ddplaunch.problem" (list (index . 0) (index . 1) "nothing that `restricted` forbids" (index . 2)) -}}
{{- end -}}
{{- $user := .Values.kubernetes.run_as_user -}}
{{- if and (kindIs "float64" $user) (not $user) -}}
{{- include "ddplaunch.problem" (list "kubernetes.run_as_user" "0, which is root" "another user" $hint) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Fields that a version of Kubernetes lacks: it would refuse them, or drop them silently. */}}
{{- define "ddplaunch.limits.version" -}}
{{- with .Values.kubernetes.version -}}
{{- $minor := splitList "." . | last | atoi -}}
{{- if lt $minor 29 -}}
{{- include "ddplaunch.problem" (list "kubernetes.version" . "1.29 or newer" "older clusters do not start sidecars before the gate") -}}
{{- end -}}
{{- $since := $.Files.Get "files/since.json" | fromJson -}}
{{- $pod := $.Values.kubernetes.pod_template -}}
{{- include "ddplaunch.limits.newer" (dict "value" $pod "minor" $minor "path" "" "above" "" "since" $since) -}}
{{- end -}}
{{- end -}}

{{/* Of a part of the user's pod template: its `value`, its `path`, and the key `above` it. */}}
{{- define "ddplaunch.limits.newer" -}}
{{- $here := . -}}
{{- if kindIs "slice" .value -}}
{{- range $index, $item := .value -}}
{{- $name := $index -}}
{{- if kindIs "map" $item }}{{ $name = $item.name | default $index }}{{ end -}}
{{- include "ddplaunch.limits.newer" (dict "value" $item "path" (printf "%s[%v]" $here.path $name)
  "minor" $here.minor "above" $here.above "since" $here.since) -}}
{{- end -}}
{{- else if kindIs "map" .value -}}
{{- range $key, $value := .value -}}
{{- $path := ternary (printf "%s.%s" $here.path $key) $key (ne $here.path "") -}}
{{- $since := get $here.since (printf "%s.%s" $here.above $key) | default 0 | int -}}
{{- if gt $since $here.minor -}}
{{- include "ddplaunch.problem" (list (printf "kubernetes.pod_template.%s" $path)
  (printf "a field that Kubernetes 1.%d lacks" $here.minor) (printf "version 1.%d or newer" $since)
  "an older cluster refuses the field, or drops it silently") -}}
{{- else -}}
{{- $above := ternary "pod" $key (eq $path "spec") -}}
{{- include "ddplaunch.limits.newer" (dict "value" $value "path" $path
  "minor" $here.minor "above" $above "since" $here.since) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Helm reads no file outside the chart, so what `source` names has to be handed over. */}}
{{- define "ddplaunch.limits.source" -}}
{{- $hint := "`ddplaunch render FILE --to kubernetes --source-archive source.b64`, and --set-file sourceArchive=source.b64" -}}
{{- if and .Values.source (not .Values.sourceArchive) -}}
{{- include "ddplaunch.problem" (list "source" "files that Helm cannot read" "sourceArchive beside it" $hint) -}}
{{- end -}}
{{- $source := div (mul 3 (len (regexReplaceAll "[\\s=]" (.Values.sourceArchive | default "") ""))) 4 -}}
{{- if gt $source 700000 -}}
{{- include "ddplaunch.problem" (list "sourceArchive" (printf "%d bytes" $source) "at most 700000"
  "list only the code under `source`; put data on a volume, and large code into the image") -}}
{{- end -}}
{{- $all := add $source (len (.Files.Get "files/agent.pyz")) (len (include "ddplaunch.plan" .)) -}}
{{- if gt $all 1048576 -}}
{{- include "ddplaunch.problem" (list "sourceArchive and env" (printf "%d bytes with the agent" $all) "at most 1048576, which a ConfigMap holds"
  "put code into the image or on a volume, and long values of `env` into files") -}}
{{- end -}}
{{- end -}}
