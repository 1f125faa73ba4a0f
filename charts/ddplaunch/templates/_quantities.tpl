{{/*
Amounts of memory as the launcher reads and writes them. Whole numbers are multiplied as such: a float would lose the
last digits of what is larger than 2^53.
*/}}

{{- define "ddplaunch.byteUnits" -}}
[["", 1], ["k", 1000], ["M", 1000000], ["G", 1000000000], ["T", 1000000000000], ["Ki", 1024], ["Mi", 1048576],
 ["Gi", 1073741824], ["Ti", 1099511627776]]
{{- end -}}

{{/* Bytes, in digits, of "16Gi", of "1.5G", or of a plain number; with a point in them when they are not whole. */}}
{{- define "ddplaunch.bytes" -}}
{{- if kindIs "string" . -}}
{{- $number := regexFind "^[0-9.]+" . -}}
{{- $suffix := regexFind "[A-Za-z]*$" . -}}
{{- range include "ddplaunch.byteUnits" $ | fromJsonArray -}}
{{- if eq (first .) $suffix -}}
{{- if contains "." $number -}}
{{- $bytes := mulf $number (last .) -}}
{{- if eq $bytes (floor $bytes) -}}{{ int64 $bytes }}{{- else -}}{{ toJson $bytes }}{{- end -}}
{{- else -}}
{{- mul (atoi $number) (int64 (last .)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- else -}}
{{- int64 . -}}
{{- end -}}
{{- end -}}

{{/* The shortest text of an amount, however it was written: 17179869184 gives 16Gi. */}}
{{- define "ddplaunch.quantity" -}}
{{- $digits := include "ddplaunch.bytes" . -}}
{{- $shortest := $digits -}}
{{- range include "ddplaunch.byteUnits" $ | fromJsonArray -}}
{{- if eq 0 (mod (int64 $digits) (int64 (last .)) | int) -}}
{{- $text := printf "%d%s" (div (int64 $digits) (int64 (last .))) (first .) -}}
{{- if lt (len $text) (len $shortest) -}}{{- $shortest = $text -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- $shortest -}}
{{- end -}}
