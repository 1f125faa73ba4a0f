{{/* Durations and amounts as the objects want them. The agent itself reads what they mean to the job. */}}

{{/* The next whole number of seconds: of "1h30m", or of a number. `mulf` counts in decimals, so 1.1h is 3960. */}}
{{- define "ddplaunch.wholeSeconds" -}}
{{- $sizes := dict "ms" 0.001 "s" 1 "m" 60 "h" 3600 "d" 86400 -}}
{{- $seconds := ternary . 0.0 (not (kindIs "string" .)) -}}
{{- range regexFindAll "[0-9.]+[a-z]+" (ternary . "" (kindIs "string" .)) -1 -}}
{{- $seconds = addf $seconds (mulf (regexFind "[0-9.]+" .) (get $sizes (regexFind "[a-z]+" .))) -}}
{{- end -}}
{{- ceil $seconds | int64 -}}
{{- end -}}

{{/* The shortest text of an amount, however it was written: 17179869184 gives 16Gi. A float would lose digits. */}}
{{- define "ddplaunch.quantity" -}}
{{- $units := list (list "" 1) (list "k" 1000) (list "M" 1000000) (list "G" 1000000000) (list "T" 1000000000000)
  (list "Ki" 1024) (list "Mi" 1048576) (list "Gi" 1073741824) (list "Ti" 1099511627776) -}}
{{- $bytes := 0 -}}
{{- if kindIs "string" . -}}
{{- $number := regexFind "^[0-9.]+" . -}}
{{- $suffix := regexFind "[A-Za-z]*$" . -}}
{{- range $units -}}
{{- if eq (first .) $suffix -}}
{{- $bytes = ternary (mulf $number (last .) | int64) (mul (atoi $number) (last .)) (contains "." $number) -}}
{{- end -}}
{{- end -}}
{{- else -}}
{{- $bytes = int64 . -}}
{{- end -}}
{{- $shortest := toString $bytes -}}
{{- range $units -}}
{{- $text := printf "%d%s" (div $bytes (last .)) (first .) -}}
{{- if and (eq 0 (mod $bytes (last .) | int)) (lt (len $text) (len $shortest)) }}{{ $shortest = $text }}{{ end -}}
{{- end -}}
{{- $shortest -}}
{{- end -}}
