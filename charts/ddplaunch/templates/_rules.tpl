{{/* The rules of every target. Each emits what it finds by ddplaunch.problem. */}}

{{/* Durations and quantities whose text is right and whose value is not. */}}
{{- define "ddplaunch.rules.units" -}}
{{- $durations := dict
  "rendezvous.timeout" .Values.rendezvous.timeout
  "gate.timeout" .Values.gate.timeout
  "watchdog.notice_after" .Values.watchdog.notice_after
  "watchdog.kill_after" .Values.watchdog.kill_after
  "kubernetes.active_deadline" .Values.kubernetes.active_deadline
  "kubernetes.ttl" .Values.kubernetes.ttl
-}}
{{- range $path, $value := $durations -}}
{{- if and (kindIs "string" $value) (ne $value "never") -}}
{{- $units := regexFindAll "[a-z]+" $value -1 -}}
{{- $seconds := include "ddplaunch.seconds" $value | float64 -}}
{{- $wanted := printf "a duration such as 10s, 2m or 1h30m%s" (ternary ", or never" "" (eq $path "watchdog.kill_after")) -}}
{{- if ne (len $units) (len (uniq $units)) -}}
{{- include "ddplaunch.problem" (list $path ($value | quote) $wanted "name each unit once") -}}
{{- else if or (le $seconds 0.0) (gt $seconds 31536000.0) -}}
{{- include "ddplaunch.problem" (list $path ($value | quote) $wanted "") -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $key := list "memory" "shm" -}}
{{- $value := get $.Values.resources $key -}}
{{- if kindIs "string" $value -}}
{{- if $value -}}
{{- $wanted := "a quantity such as 16Gi or 500M, or a number of bytes" -}}
{{- $bytes := include "ddplaunch.bytes" $value -}}
{{- if contains "." $bytes -}}
{{- $hint := printf "%s is no whole number of bytes" $value -}}
{{- include "ddplaunch.problem" (list (printf "resources.%s" $key) ($value | quote) $wanted $hint) -}}
{{- else if or (le (int64 $bytes) 0) (gt (int64 $bytes) 1152921504606846976) -}}
{{- include "ddplaunch.problem" (list (printf "resources.%s" $key) ($value | quote) $wanted "") -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "ddplaunch.rules.network" -}}
{{- $meet := .Values.rendezvous -}}
{{- range $path, $given := dict "rendezvous.port" $meet.port "gate.port" .Values.gate.port -}}
{{- $port := $given | default 0 | int -}}
{{- if and $port (lt $port 1024) -}}
{{- include "ddplaunch.problem" (list $path (toString $port) "a port from 1024 to 32767" "ports below 1024 need root") -}}
{{- else if and (ge $port 32768) (le $port 60999) -}}
{{- include "ddplaunch.problem" (list $path (toString $port) "a port from 1024 to 32767 [port-ephemeral]"
  "32768 to 60999 are ephemeral: any outgoing connection may hold one; leave the port out, and a free one is chosen") -}}
{{- end -}}
{{- end -}}
{{- if and .Values.gate.port (eq (int .Values.gate.port) (int ($meet.port | default 0))) -}}
{{- include "ddplaunch.problem" (list "gate.port" (printf "%d, which is rendezvous.port" (int .Values.gate.port)) "a port of its own"
  "the hub keeps its port while torchrun's store uses the other") -}}
{{- end -}}
{{- with $meet.address -}}
{{- if regexMatch "^[^:]+:[0-9]+$" . -}}
{{- $words := splitList ":" . -}}
{{- $hint := printf "write address: %s and port: %s" (first $words) (last $words) -}}
{{- include "ddplaunch.problem" (list "rendezvous.address" "a port in it" "a name or an address alone" $hint) -}}
{{- end -}}
{{- end -}}
{{- $waits := ne (include "ddplaunch.seconds" $meet.timeout | float64) 600.0 -}}
{{- if and (eq .Values.launch "mpi") (or (ne $meet.backend "static") $meet.address $meet.port $meet.max_restarts $waits) -}}
{{- include "ddplaunch.problem" (list "rendezvous" "settings of torchrun's rendezvous" "none with launch: mpi"
  "remove the section: MPI brings its ranks together itself") -}}
{{- end -}}
{{- if and $meet.max_restarts (eq $meet.backend "static") (gt (int .Values.nodes) 1) -}}
{{- include "ddplaunch.problem" (list "rendezvous.max_restarts" (printf "%d with the static backend" (int $meet.max_restarts)) "0, or backend: c10d"
  "nodes cannot meet again through a static rendezvous; set backend: c10d, or use retries") -}}
{{- end -}}
{{- $notice := include "ddplaunch.seconds" .Values.watchdog.notice_after | float64 -}}
{{- if ne (toString .Values.watchdog.kill_after) "never" -}}
{{- $kill := include "ddplaunch.seconds" .Values.watchdog.kill_after | float64 -}}
{{- if ge $notice $kill -}}
{{- include "ddplaunch.problem" (list "watchdog.notice_after" (include "ddplaunch.duration" $notice)
  (printf "less than watchdog.kill_after, which is %s" (include "ddplaunch.duration" $kill))
  "the notice comes first, then the evidence, then the end") -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "ddplaunch.rules.command" -}}
{{- $first := first .Values.command -}}
{{- $rest := rest .Values.command -}}
{{- $name := splitList "/" $first | last -}}
{{- $wanted := "the script and its arguments only" -}}
{{- if has $name (list "torchrun" "accelerate" "deepspeed" "mpirun" "mpiexec" "srun") -}}
{{- include "ddplaunch.problem" (list "command[0]" ($first | quote) $wanted "ddplaunch calls torchrun itself") -}}
{{- else if regexMatch "^python(3(\\.[0-9]+)?)?$" $name -}}
{{- $begin := ternary "-m" (first $rest | default "the script") (eq (first $rest | default "") "-m") -}}
{{- include "ddplaunch.problem" (list "command[0]" ($first | quote) $wanted (printf "begin with %s; another Python is named by `python`" $begin)) -}}
{{- else if and (hasPrefix "-" $first) (ne $first "-m") -}}
{{- include "ddplaunch.problem" (list "command[0]" ($first | quote) $wanted
  "torchrun's flags have keys of their own here: nodes, nproc_per_node, rendezvous") -}}
{{- else if and (not $rest) (regexMatch "\\.py\\s+\\S" $first) -}}
{{- $words := list -}}
{{- range regexSplit "\\s+" (trim $first) -1 }}{{ $words = append $words (ternary . (. | quote) (regexMatch "^[a-z_./-]+$" .)) }}{{ end -}}
{{- include "ddplaunch.problem" (list "command[0]" ($first | quote) "one item for each word" (printf "write [%s]" (join ", " $words))) -}}
{{- end -}}
{{- end -}}

{{/* Variables that torchrun or ddplaunch sets for each rank, or that NCCL and Gloo would ignore in silence. */}}
{{- define "ddplaunch.rules.variables" -}}
{{- $owned := dict "RANK" "" "LOCAL_RANK" "" "GROUP_RANK" "" "NODE_RANK" ""
  "WORLD_SIZE" "set nodes and nproc_per_node"
  "LOCAL_WORLD_SIZE" "set nproc_per_node"
  "GROUP_WORLD_SIZE" "set nodes"
  "MASTER_ADDR" "set rendezvous.address, if it must be set at all"
  "MASTER_PORT" "set rendezvous.port, if it must be set at all"
-}}
{{- range $section := list "env" "secrets" -}}
{{- range $name, $_ := get $.Values $section -}}
{{- if or (hasKey $owned $name) (regexMatch "^(DDPLAUNCH_|PET_|TORCHELASTIC_)" $name) -}}
{{- include "ddplaunch.problem" (list (printf "%s.%s" $section $name) "a name that ddplaunch sets itself" "another name"
  (get $owned $name | default "remove it")) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $name, $reference := .Values.secrets -}}
{{- $at := printf "secrets.%s" $name -}}
{{- if hasKey $.Values.env $name -}}
{{- include "ddplaunch.problem" (list $at "a name that env has too" "it in one of the two" "") -}}
{{- end -}}
{{- $given := list -}}
{{- range list "env" "file" "secret" }}{{ if not (kindIs "invalid" (get $reference .)) }}{{ if get $reference . }}{{ $given = append $given . }}{{ end }}{{ end }}{{ end -}}
{{- if ne 1 (len $given) -}}
{{- include "ddplaunch.problem" (list $at (join " and " $given | default "no source") "exactly one of env, file, secret" "") -}}
{{- else if not $reference.secret -}}
{{- include "ddplaunch.problem" (list $at "env or file" "a Secret of the cluster for --to kubernetes"
  (printf "kubectl create secret generic %s --from-literal=%s=…, and %s: {secret: {name: %s, key: %s}}" $.Values.name $name $name $.Values.name $name)) -}}
{{- else if not (regexMatch "^[-._A-Za-z0-9]{1,253}$" $reference.secret.key) -}}
{{- include "ddplaunch.problem" (list (printf "%s.secret.key" $at) "no such key" "at most 253 letters, digits, '-', '_', '.'" "") -}}
{{- end -}}
{{- end -}}
{{- $nccl := get .Values.env "NCCL_SOCKET_IFNAME" -}}
{{- if eq 1 (len (splitList "" $nccl)) -}}
{{- include "ddplaunch.problem" (list "env.NCCL_SOCKET_IFNAME" ($nccl | quote) "a name or a prefix of two characters or more"
  "NCCL ignores a value of one character and takes what it finds") -}}
{{- else if hasPrefix "=^" $nccl -}}
{{- include "ddplaunch.problem" (list "env.NCCL_SOCKET_IFNAME" ($nccl | quote) "^= in this order" "NCCL takes =^ for a name that begins with ^") -}}
{{- else if regexMatch "\\s" $nccl -}}
{{- include "ddplaunch.problem" (list "env.NCCL_SOCKET_IFNAME" ($nccl | quote) "names with commas and no blanks" "NCCL does not trim blanks") -}}
{{- end -}}
{{- $gloo := get .Values.env "GLOO_SOCKET_IFNAME" -}}
{{- if or (eq 1 (len (splitList "" $gloo))) (regexMatch "[\\^=\\s]" $gloo) -}}
{{- include "ddplaunch.problem" (list "env.GLOO_SOCKET_IFNAME" ($gloo | quote) "exact names with commas, such as eth0"
  "Gloo knows neither prefixes nor ^ and = as NCCL does, and ignores one character") -}}
{{- end -}}
{{- if hasKey .Values.env "NCCL_SOCKET_FAMILY" -}}
{{- $family := get .Values.env "NCCL_SOCKET_FAMILY" -}}
{{- if not (has $family (list "AF_INET" "AF_INET6")) -}}
{{- include "ddplaunch.problem" (list "env.NCCL_SOCKET_FAMILY" ($family | quote) "AF_INET or AF_INET6" "NCCL ignores any other value in silence") -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* One kind of storage each, and no two in one place. */}}
{{- define "ddplaunch.rules.volumes" -}}
{{- $seen := dict -}}
{{- range $index, $volume := .Values.volumes -}}
{{- $at := printf "volumes[%d]" $index -}}
{{- $given := list -}}
{{- range list "host_path" "claim" "empty_dir" }}{{ if get $volume . }}{{ $given = append $given . }}{{ end }}{{ end -}}
{{- if ne 1 (len $given) -}}
{{- include "ddplaunch.problem" (list $at (join " and " $given | default "no storage") "exactly one of host_path, claim, empty_dir" "") -}}
{{- end -}}
{{- range $key := list "name" "mount_path" -}}
{{- $value := get $volume $key -}}
{{- if hasKey $seen (printf "%s %s" $key $value) -}}
{{- include "ddplaunch.problem" (list (printf "%s.%s" $at $key) (printf "%s a second time" ($value | quote)) (printf "a %s of its own" $key) "") -}}
{{- end -}}
{{- $_ := set $seen (printf "%s %s" $key $value) true -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* What the API server refuses. */}}
{{- define "ddplaunch.rules.tolerations" -}}
{{- range $index, $toleration := .Values.kubernetes.tolerations -}}
{{- $at := printf "kubernetes.tolerations[%d]" $index -}}
{{- if and (eq (.operator | default "Equal") "Exists") (kindIs "string" .value) -}}
{{- include "ddplaunch.problem" (list (printf "%s.value" $at) "a value with operator: Exists" "no value, or operator: Equal" "") -}}
{{- end -}}
{{- if and (eq (.operator | default "Equal") "Equal") (not .key) -}}
{{- include "ddplaunch.problem" (list $at "no key with operator: Equal" "a key, or operator: Exists" "") -}}
{{- end -}}
{{- if and (kindIs "float64" .toleration_seconds) (ne (.effect | default "") "NoExecute") -}}
{{- include "ddplaunch.problem" (list (printf "%s.toleration_seconds" $at) "toleration_seconds without effect: NoExecute"
  "effect: NoExecute, or no toleration_seconds" "") -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The chart reads nothing of this section, but a job file is right as a whole or not at all. */}}
{{- define "ddplaunch.rules.slurm" -}}
{{- $owned := dict "-N" "nodes" "--nodes" "nodes" "-n" "nodes and nproc_per_node" "--ntasks" "nodes and nproc_per_node"
  "--ntasks-per-node" "nproc_per_node" "-J" "name" "--job-name" "name" "--export" "env" -}}
{{- range $index, $option := .Values.slurm.extra -}}
{{- with get $owned (regexSplit "[=\\s]" $option -1 | first) -}}
{{- include "ddplaunch.problem" (list (printf "slurm.extra[%d]" $index) ($option | quote) (printf "the key %s of the job file" .) "") -}}
{{- end -}}
{{- end -}}
{{- $container := .Values.slurm.container -}}
{{- if and (eq $container.runtime "none") (or $container.image $container.mounts) -}}
{{- include "ddplaunch.problem" (list "slurm.container" "an image or mounts without a runtime" "runtime: pyxis or runtime: apptainer" "") -}}
{{- end -}}
{{- end -}}
