{{/*
A strategic merge patch, merged over a pod template as the API server merges it. Named templates give text, so every
level goes through JSON; `original` and `patch` are of the same kind in each.
*/}}

{{/* The lists of a pod template whose items are merged, by the key that tells them apart. Others are replaced. */}}
{{- define "ddplaunch.overlay.keys" -}}
{"containers": "name", "initContainers": "name", "ephemeralContainers": "name", "env": "name", "volumes": "name",
 "imagePullSecrets": "name", "resourceClaims": "name", "schedulingGates": "name", "hostAliases": "ip",
 "ownerReferences": "uid", "ports": "containerPort", "topologySpreadConstraints": "topologyKey",
 "volumeDevices": "devicePath", "volumeMounts": "mountPath"}
{{- end -}}

{{/* JSON of a mapping with another merged over it. */}}
{{- define "ddplaunch.overlay" -}}
{{- $path := .path -}}
{{- $directive := get .patch "$patch" | default "merge" -}}
{{- if not (has $directive (list "merge" "replace" "delete")) -}}
{{- include "ddplaunch.overlay.fail" (list (printf "%s.$patch" $path) (printf "'%v'" $directive) "merge, replace or delete") -}}
{{- end -}}
{{- $merged := dict -}}
{{- if eq $directive "replace" -}}
{{- $merged = include "ddplaunch.overlay.plain" (dict "value" .patch) | fromJson | dig "value" dict -}}
{{- else if eq $directive "merge" -}}
{{- /* With $retainKeys, only those: how one kind of volume takes the place of another. */ -}}
{{- range $key, $value := .original -}}
{{- if or (not (hasKey $.patch "$retainKeys")) (has $key (get $.patch "$retainKeys")) }}{{ $_ := set $merged $key $value }}{{ end -}}
{{- end -}}
{{- range $key, $value := .patch -}}
{{- if or (has $key (list "$patch" "$retainKeys")) (hasPrefix "$setElementOrder/" $key) -}}
{{- else if hasPrefix "$deleteFromPrimitiveList/" $key -}}
{{- $name := trimPrefix "$deleteFromPrimitiveList/" $key -}}
{{- $kept := list -}}
{{- range get $merged $name | default list }}{{ if not (has . $value) }}{{ $kept = append $kept . }}{{ end }}{{ end -}}
{{- $_ := set $merged $name $kept -}}
{{- else if kindIs "invalid" $value -}}
{{- $_ := unset $merged $key -}}
{{- else -}}
{{- $each := dict "key" $key "original" (get $merged $key) "patch" $value "path" (printf "%s.%s" $path $key) -}}
{{- $_ := set $merged $key (include "ddplaunch.overlay.value" $each | fromJson | dig "value" nil) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- toJson $merged -}}
{{- end -}}

{{/* JSON of {value: …}, for one key of a mapping. */}}
{{- define "ddplaunch.overlay.value" -}}
{{- $by := include "ddplaunch.overlay.keys" . | fromJson -}}
{{- $had := ternary "" (kindOf .original) (eq (toString .original) "") -}}
{{- if and (eq $had "map") (not (kindIs "map" .patch)) -}}
{{- include "ddplaunch.overlay.fail" (list .path (include "ddplaunch.overlay.kind" .patch) "a mapping") -}}
{{- else if and (eq $had "slice") (not (kindIs "slice" .patch)) -}}
{{- include "ddplaunch.overlay.fail" (list .path (include "ddplaunch.overlay.kind" .patch) "a list") -}}
{{- else if eq $had "map" -}}
{"value": {{ include "ddplaunch.overlay" . }}}
{{- else if and (hasKey $by .key) (kindIs "slice" .patch) -}}
{{- $lists := dict "original" (.original | default list) "patch" .patch "path" .path "by" (get $by .key) -}}
{"value": {{ include "ddplaunch.overlay.items" $lists }}}
{{- else if and (eq .key "finalizers") (eq $had "slice") -}}
{{- include "ddplaunch.overlay.fail" (list .path "a list" "none, for the chart merges no finalizers") -}}
{{- else -}}
{{- include "ddplaunch.overlay.plain" (dict "value" .patch) -}}
{{- end -}}
{{- end -}}

{{/* JSON of a list: items of the same name are merged, new ones stand first, as `kubectl patch` puts them. */}}
{{- define "ddplaunch.overlay.items" -}}
{{- $by := .by -}}
{{- $path := .path -}}
{{- $found := dict -}}
{{- $ours := list -}}
{{- $theirs := list -}}
{{- $was := dict -}}
{{- $replace := false -}}
{{- range $index, $item := .original -}}
{{- $name := get $item $by | toString -}}
{{- $_ := set $found $name $item -}}
{{- $_ := set $was $name $index -}}
{{- end -}}
{{- range $index, $item := .patch -}}
{{- $at := printf "%s[%d]" $path $index -}}
{{- if not (kindIs "map" $item) -}}
{{- include "ddplaunch.overlay.fail" (list $at (include "ddplaunch.overlay.kind" $item) (printf "a mapping with %s" $by)) -}}
{{- else if eq (get $item "$patch") "replace" -}}
{{- $replace = true -}}
{{- else if not (hasKey $item $by) -}}
{{- include "ddplaunch.overlay.fail" (list $at (printf "no %s" $by) (printf "%s, by which the item is found" $by)) -}}
{{- else if hasKey $item "$patch" -}}
{{- if ne (get $item "$patch") "delete" -}}
{{- include "ddplaunch.overlay.fail" (list (printf "%s.$patch" $at) (printf "'%v'" (get $item "$patch")) "replace or delete") -}}
{{- end -}}
{{- $_ := unset $found (get $item $by | toString) -}}
{{- end -}}
{{- end -}}
{{- if $replace -}}
{{- $kept := list -}}
{{- range .patch }}{{ if ne (get . "$patch") "replace" }}{{ $kept = append $kept . }}{{ end }}{{ end -}}
{{- include "ddplaunch.overlay.plain" (dict "value" $kept) | fromJson | dig "value" list | toJson -}}
{{- else -}}
{{- range .patch -}}
{{- if not (hasKey . "$patch") -}}
{{- $name := get . $by | toString -}}
{{- $each := dict "original" (get $found $name | default dict) "patch" . "path" (printf "%s[%s]" $path $name) -}}
{{- $_ := set $found $name (include "ddplaunch.overlay" $each | fromJson) -}}
{{- if not (has $name $theirs) }}{{ $theirs = append $theirs $name }}{{ end -}}
{{- end -}}
{{- end -}}
{{- range .original -}}
{{- $name := get . $by | toString -}}
{{- if and (hasKey $found $name) (not (has $name $theirs)) }}{{ $ours = append $ours $name }}{{ end -}}
{{- end -}}
{{- /* Both keep their own order; where they say nothing of each other, the patch's item is first. */ -}}
{{- $order := list -}}
{{- range $name := $theirs -}}
{{- range $mine := $ours -}}
{{- if and (hasKey $was $name) (not (has $mine $order)) -}}
{{- if lt (get $was $mine) (get $was $name) }}{{ $order = append $order $mine }}{{ end -}}
{{- end -}}
{{- end -}}
{{- $order = append $order $name -}}
{{- end -}}
{{- $items := list -}}
{{- range concat $order $ours | uniq }}{{ $items = append $items (get $found .) }}{{ end -}}
{{- toJson $items -}}
{{- end -}}
{{- end -}}

{{/* JSON of {value: …}: what is new, without the words that only speak to a merge. */}}
{{- define "ddplaunch.overlay.plain" -}}
{{- $value := .value -}}
{{- if kindIs "map" $value -}}
{{- $value = dict -}}
{{- range $key, $each := .value -}}
{{- if not (or (hasPrefix "$" $key) (kindIs "invalid" $each)) -}}
{{- $_ := set $value $key (include "ddplaunch.overlay.plain" (dict "value" $each) | fromJson | dig "value" nil) -}}
{{- end -}}
{{- end -}}
{{- else if kindIs "slice" $value -}}
{{- $value = list -}}
{{- range .value -}}
{{- $special := ternary (has (toString (dig "$patch" "" (ternary . dict (kindIs "map" .)))) (list "delete" "replace")) false (kindIs "map" .) -}}
{{- if not $special -}}
{{- $value = append $value (include "ddplaunch.overlay.plain" (dict "value" .) | fromJson | dig "value" nil) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- dict "value" $value | toJson -}}
{{- end -}}

{{/* Of a list of path, found and wanted. A patch that is none can be merged with nothing, so nothing else is said. */}}
{{- define "ddplaunch.overlay.fail" -}}
{{- fail (printf "\n\nkubernetes.pod_template%s: found %s, wanted %s" (index . 0) (index . 1) (index . 2)) -}}
{{- end -}}

{{- define "ddplaunch.overlay.kind" -}}
{{- $kinds := dict "map" "a mapping" "slice" "a list" "string" "text" "invalid" "nothing" -}}
{{- get $kinds (kindOf .) | default (toString .) -}}
{{- end -}}
