{{/* The forms in which Kubernetes takes names: each gives what would have it, or nothing when the text has it. */}}

{{- define "ddplaunch.name.key" -}}
{{- $parts := splitList "/" . -}}
{{- $domain := initial $parts | join "/" -}}
{{- $label := "[a-z0-9]([-a-z0-9]*[a-z0-9])?" -}}
{{- $good := regexMatch "^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$" (last $parts) -}}
{{- if gt (len $parts) 1 -}}
{{- $good = and $good (le (len $domain) 253) (regexMatch (printf "^%s(\\.%s)*$" $label $label) $domain) -}}
{{- end -}}
{{- if not $good }}a key such as example.com/team: letters, digits, '-', '_', '.', at most 63{{ end -}}
{{- end -}}

{{- define "ddplaunch.name.labelValue" -}}
{{- if not (regexMatch "^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$" .) -}}
at most 63 letters, digits, '-', '_', '.', with a letter or digit at both ends
{{- end -}}
{{- end -}}

{{- define "ddplaunch.name.resource" -}}
{{- if or (not (contains "/" .)) (include "ddplaunch.name.key" .) (hasPrefix "kubernetes.io/" .) -}}
a device plugin's resource, such as nvidia.com/gpu
{{- end -}}
{{- end -}}

{{/* As registries read it; a wrong one is seen only when a node shall pull it. */}}
{{- define "ddplaunch.name.image" -}}
{{- $label := "[A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?" -}}
{{- $host := printf "%s(\\.%s)*(:[0-9]+)?" $label $label -}}
{{- $part := "[a-z0-9]+((\\.|_|__|-+)[a-z0-9]+)*" -}}
{{- $tag := "(:[A-Za-z0-9_][-.A-Za-z0-9_]{0,127})?(@[a-z0-9+._-]+:[0-9a-f]{32,})?" -}}
{{- if not (regexMatch (printf "^(%s/)?%s(/%s)*%s$" $host $part $part $tag) .) -}}
an image such as registry.example.com/team/trainer:1.0
{{- end -}}
{{- end -}}

{{/* A NetworkAttachmentDefinition as Multus reads it. */}}
{{- define "ddplaunch.name.network" -}}
{{- $label := "[a-z0-9]([-a-z0-9]*[a-z0-9])?" -}}
{{- $domain := printf "%s(\\.%s)*" $label $label -}}
{{- if not (regexMatch (printf "^(%s/)?%s(@[^/@\\s]{1,15})?$" $domain $domain) .) -}}
NAME, NAMESPACE/NAME or NAME@INTERFACE
{{- end -}}
{{- end -}}
