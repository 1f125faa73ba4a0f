{{/* What a pod template of the user's may not change: without it the gate would wait for ever, or prove nothing. */}}

{{- define "ddplaunch.limits.podTemplate" -}}
{{- if .Values.kubernetes.pod_template -}}
{{- $before := include "ddplaunch.renderedPod" . | fromYaml -}}
{{- include "ddplaunch.guard" (dict "before" $before "after" (include "ddplaunch.podTemplate" . | fromYaml)) -}}
{{- end -}}
{{- end -}}

{{/* Emits problems, of a dict of the pod template `before` and `after` the user's was merged over it. */}}
{{- define "ddplaunch.guard" -}}
{{- $labels := dig "metadata" "labels" dict .after | default dict -}}
{{- range $key, $value := .before.metadata.labels -}}
{{- if and (ne $value (get $labels $key | toString)) (ne $key "sidecar.istio.io/inject") -}}
{{- include "ddplaunch.guard.problem" (list (printf "metadata.labels.%s" $key) ($value | quote) "by its labels the job is found") -}}
{{- end -}}
{{- end -}}
{{- $was := .before.spec -}}
{{- $now := .after.spec | default dict -}}
{{- $reasons := dict
  "subdomain" "the nodes' names are below it"
  "restartPolicy" "a pod that starts again would meet an old attempt"
  "hostNetwork" "set kubernetes.host_network, which also keeps the nodes apart"
  "hostname" "the nodes' names are made of the job's name and their index"
  "hostnameOverride" "the nodes' names are made of the job's name and their index"
  "setHostnameAsFQDN" "a pod whose full name is longer than 64 characters would never start"
-}}
{{- include "ddplaunch.guard.same" (list "spec" $was $now $reasons) -}}
{{- include "ddplaunch.guard.pod" (list $was $now) -}}
{{- range $section := list "initContainers" "containers" -}}
{{- range $container := get $was $section -}}
{{- $at := printf "spec.%s[%s]" $section .name -}}
{{- $there := include "ddplaunch.guard.by" (list (get $now $section) "name") | fromJson -}}
{{- if hasKey $there .name -}}
{{- include "ddplaunch.guard.container" (list $at . (get $there .name)) -}}
{{- else -}}
{{- include "ddplaunch.guard.problem" (list $at (printf "the container %s" .name) "each of them has its part") -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- include "ddplaunch.guard.devices" $now -}}
{{- end -}}

{{- define "ddplaunch.guard.pod" -}}
{{- $was := first . -}}
{{- $now := last . -}}
{{- $policy := $was.dnsPolicy | default "ClusterFirst" -}}
{{- if not (has ($now.dnsPolicy | default "ClusterFirst") (list $policy "None")) -}}
{{- include "ddplaunch.guard.problem" (list "spec.dnsPolicy" $policy "the nodes' names are the cluster's: no other server knows them") -}}
{{- end -}}
{{- if lt ($now.terminationGracePeriodSeconds | default 0 | int) 60 -}}
{{- include "ddplaunch.guard.problem" (list "spec.terminationGracePeriodSeconds" "60 or more" "evidence is taken before anything is killed") -}}
{{- end -}}
{{- $names := list -}}
{{- range $now.initContainers }}{{ $names = append $names .name }}{{ end -}}
{{- if and (has "gate" $names) (ne (last $names) "gate") -}}
{{- include "ddplaunch.guard.problem" (list "spec.initContainers" "gate as the last"
  "what runs after the gate lets the others wait: name yours before it, and hub before both") -}}
{{- end -}}
{{- if $was.affinity -}}
{{- $required := "requiredDuringSchedulingIgnoredDuringExecution" -}}
{{- $terms := dig "affinity" "podAntiAffinity" $required list $now -}}
{{- range dig "affinity" "podAntiAffinity" $required list $was -}}
{{- if not (has . $terms) -}}
{{- include "ddplaunch.guard.problem" (list "spec.affinity.podAntiAffinity" "the rendered term among yours"
  "set kubernetes.host_network, which also keeps the nodes apart") -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $volumes := include "ddplaunch.guard.by" (list $now.volumes "name") | fromJson -}}
{{- range $was.volumes -}}
{{- if and (has .name (list "ddplaunch" "files")) (ne (toJson .) (get $volumes .name | toJson)) -}}
{{- include "ddplaunch.guard.problem" (list (printf "spec.volumes[%s]" .name) "the volume as it is" "the agent lies in it") -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "ddplaunch.guard.container" -}}
{{- $at := index . 0 -}}
{{- $was := index . 1 -}}
{{- $now := index . 2 -}}
{{- $reasons := dict
  "image" "set image: the gate proves the image that trains"
  "command" "the agent starts the job's command; set command, python or launch"
  "args" "the agent starts the job's command; set command"
  "restartPolicy" "the hub must go on, and the gate must end"
  "terminationMessagePath" "the verdict is read from there"
-}}
{{- include "ddplaunch.guard.same" (list $at $was $now $reasons) -}}
{{- $env := include "ddplaunch.guard.by" (list $now.env "name") | fromJson -}}
{{- range $was.env -}}
{{- if and (hasPrefix "DDPLAUNCH_" .name) (ne (toJson .) (get $env .name | toJson)) -}}
{{- include "ddplaunch.guard.problem" (list (printf "%s.env[%s]" $at .name) "the variable as it is" "it tells the node who it is") -}}
{{- end -}}
{{- end -}}
{{- $own := include "ddplaunch.guard.by" (list $was.volumeMounts "mountPath") | fromJson -}}
{{- $mounts := include "ddplaunch.guard.by" (list $now.volumeMounts "mountPath") | fromJson -}}
{{- range $path := concat (keys $own) (keys $mounts) | uniq -}}
{{- if and (regexMatch "^/ddplaunch(/|$)" $path) (ne (get $own $path | toJson) (get $mounts $path | toJson)) -}}
{{- include "ddplaunch.guard.problem" (list (printf "%s.volumeMounts[%s]" $at $path) "the mount as it is" "the agent's files lie there") -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Devices are given to each container by itself: a gate without them would prove nothing of them. */}}
{{- define "ddplaunch.guard.devices" -}}
{{- $there := include "ddplaunch.guard.by" (list (concat (.initContainers | default list) (.containers | default list)) "name") | fromJson -}}
{{- if and (hasKey $there "gate") (hasKey $there "trainer") -}}
{{- $gate := $there.gate.resources | default dict -}}
{{- $trainer := $there.trainer.resources | default dict -}}
{{- $why := "the gate proves the devices that the trainer has" -}}
{{- range $name, $count := $trainer.limits -}}
{{- if and (contains "/" $name) (ne (toString $count) (dig "limits" $name "" $gate | toString)) -}}
{{- include "ddplaunch.guard.problem" (list (printf "spec.initContainers[gate].resources.limits.%s" $name)
  (printf "\"%v\", as the trainer has it" $count) $why) -}}
{{- end -}}
{{- end -}}
{{- if ne (toJson $gate.claims) (toJson $trainer.claims) -}}
{{- include "ddplaunch.guard.problem" (list "spec.initContainers[gate].resources.claims" "the claims of the trainer" $why) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Of a list of path, before, after, and the reasons why some keys must be the same in both. */}}
{{- define "ddplaunch.guard.same" -}}
{{- $at := index . 0 -}}
{{- $was := index . 1 -}}
{{- $now := index . 2 -}}
{{- range $key, $why := index . 3 -}}
{{- $before := get $was $key | default nil -}}
{{- if ne (toJson $before) (get $now $key | default nil | toJson) -}}
{{- $shown := ternary (join " " $before) (toString $before) (kindIs "slice" $before) -}}
{{- include "ddplaunch.guard.problem" (list (printf "%s.%s" $at $key) (ternary "nothing" $shown (kindIs "invalid" $before)) $why) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* JSON of the items of a list, by the key that tells them apart. */}}
{{- define "ddplaunch.guard.by" -}}
{{- $key := last . -}}
{{- $found := dict -}}
{{- range first . -}}
{{- $_ := set $found (get . $key | toString) . -}}
{{- end -}}
{{- toJson $found -}}
{{- end -}}

{{- define "ddplaunch.guard.problem" -}}
{{- include "ddplaunch.problem" (list (printf "kubernetes.pod_template.%s" (index . 0)) "a change that breaks the gate" (index . 1) (index . 2)) -}}
{{- end -}}
