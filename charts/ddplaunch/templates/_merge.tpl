{{/*
The user's pod template, merged over the rendered one as the API server merges a strategic merge patch. The schema
refuses what would break the gate, items without their key, and of the words that begin with $ all but $patch in lists.
*/}}

{{/* JSON of a mapping, from a dict of `original`, `patch`, its `path`, and `keys`, which tell items of lists apart. */}}
{{- define "ddplaunch.merge" -}}
{{- $here := . -}}
{{- $merged := deepCopy .original -}}
{{- $replace := dict "$patch" "replace" -}}
{{- range $key, $new := .patch -}}
{{- $old := get $merged $key -}}
{{- $below := dict "original" $old "patch" $new "path" (printf "%s.%s" $here.path $key) "keys" $here.keys "by" (get $here.keys $key) -}}
{{- if kindIs "invalid" $new -}}
{{- $_ := unset $merged $key -}}
{{- else if and (has (kindOf $old) (list "map" "slice")) (ne (kindOf $old) (kindOf $new)) -}}
{{- $kinds := dict "map" "a mapping" "slice" "a list" "string" "text" -}}
{{- fail (printf "\n\nkubernetes.pod_template%s: found %v, wanted %s" $below.path (get $kinds (kindOf $new) | default $new) (get $kinds (kindOf $old))) -}}
{{- else if kindIs "map" $new -}}
{{- $_ := set $below "original" (ternary $old dict (kindIs "map" $old)) -}}
{{- $_ := set $merged $key (include "ddplaunch.merge" $below | fromJson) -}}
{{- else if and (kindIs "slice" $new) (has $replace $new) -}}
{{- $_ := set $merged $key (without $new $replace) -}}
{{- else if and (kindIs "slice" $new) $below.by -}}
{{- $_ := set $merged $key (include "ddplaunch.mergeItems" $below | fromJsonArray) -}}
{{- else -}}
{{- $_ := set $merged $key $new -}}
{{- end -}}
{{- end -}}
{{- toJson $merged -}}
{{- end -}}

{{/* JSON of a list: items of the same name are merged, new ones come first, and both lists keep their order. */}}
{{- define "ddplaunch.mergeItems" -}}
{{- $here := . -}}
{{- $found := dict -}}
{{- $ours := list -}}
{{- $theirs := list -}}
{{- range .original | default list -}}
{{- $ours = append $ours (get . $here.by | toString) -}}
{{- $_ := set $found (last $ours) . -}}
{{- end -}}
{{- range .patch -}}
{{- $theirs = append $theirs (get . $here.by | toString) -}}
{{- $each := dict "original" (get $found (last $theirs) | default dict) "patch" . "path" (printf "%s[%s]" $here.path (last $theirs)) -}}
{{- $_ := set $found (last $theirs) (include "ddplaunch.merge" (set $each "keys" $here.keys) | fromJson) -}}
{{- if hasKey . "$patch" }}{{ $_ := unset $found (last $theirs) }}{{ end -}}
{{- end -}}
{{- $order := list -}}
{{- range $name := $theirs -}}
{{- range ternary $ours list (has $name $ours) -}}
{{- if eq . $name }}{{ break }}{{ end -}}
{{- if not (has . $theirs) }}{{ $order = append $order . }}{{ end -}}
{{- end -}}
{{- $order = append $order $name -}}
{{- end -}}
{{- $items := list -}}
{{- range concat $order $ours | uniq }}{{ if hasKey $found . }}{{ $items = append $items (get $found .) }}{{ end }}{{ end -}}
{{- toJson $items -}}
{{- end -}}
