{{/*
Durations as the launcher reads and writes them. `mulf` and `addf` count in decimals, so 1.1h is 3960 seconds and not
3960.0000000000005: the plan must be the launcher's to the last byte.
*/}}

{{/* Seconds, as JSON, of "1h30m", or of a plain number of seconds. */}}
{{- define "ddplaunch.seconds" -}}
{{- $sizes := dict "ms" 0.001 "s" 1 "m" 60 "h" 3600 "d" 86400 -}}
{{- $seconds := 0.0 -}}
{{- if kindIs "string" . -}}
{{- range regexFindAll "[0-9.]+[a-z]+" . -1 -}}
{{- $seconds = addf $seconds (mulf (regexFind "[0-9.]+" .) (get $sizes (regexFind "[a-z]+" .))) -}}
{{- end -}}
{{- else -}}
{{- $seconds = . -}}
{{- end -}}
{{- toJson $seconds -}}
{{- end -}}

{{/* The shortest text of so many seconds: 90 gives 1m30s. For sentences alone. */}}
{{- define "ddplaunch.duration" -}}
{{- $text := "" -}}
{{- $rest := mulf . 1000 | int64 -}}
{{- range list (list "d" 86400000) (list "h" 3600000) (list "m" 60000) (list "s" 1000) (list "ms" 1) -}}
{{- $count := div $rest (last .) -}}
{{- if $count -}}
{{- $text = printf "%s%d%s" $text $count (first .) -}}
{{- $rest = sub $rest (mul $count (last .)) -}}
{{- end -}}
{{- end -}}
{{- $text | default "0s" -}}
{{- end -}}

{{/* The next whole number, as Kubernetes counts time. */}}
{{- define "ddplaunch.wholeSeconds" -}}
{{- include "ddplaunch.seconds" . | ceil | int64 -}}
{{- end -}}

{{/* The nearest whole number, the even one of two, as Python rounds; at least 1. */}}
{{- define "ddplaunch.roundedSeconds" -}}
{{- $seconds := include "ddplaunch.seconds" . | float64 -}}
{{- $whole := floor $seconds | int64 -}}
{{- $rest := subf $seconds $whole -}}
{{- if or (gt $rest 0.5) (and (eq $rest 0.5) (mod $whole 2)) -}}
{{- $whole = add $whole 1 -}}
{{- end -}}
{{- max 1 $whole -}}
{{- end -}}
