{{/*
What the launcher refuses and a schema cannot: values that are right each for itself and wrong together. All of it is
told at once, in the launcher's words, before anything is sent. The launcher's rules are in spec/rules.py and
plan/kubernetes_limits.py; a test holds these against those.
*/}}

{{- define "ddplaunch.check" -}}
{{- if not (.Files.Get "files/agent.pyz") -}}
{{- fail "\n\nthis chart has no agent in it, which every pod runs\n  hint: install the packaged chart; `make chart` writes it from the repository" -}}
{{- end -}}
{{- $problems := include "ddplaunch.problems" . | trim -}}
{{- if not $problems -}}
{{- /* Only of what is right so far can a pod be made. */ -}}
{{- $problems = include "ddplaunch.limits.podTemplate" . | trim -}}
{{- end -}}
{{- if $problems -}}
{{- $problems = splitList "\n\n" $problems | sortAlpha -}}
{{- $count := ternary "1 problem" (printf "%d problems" (len $problems)) (eq 1 (len $problems)) -}}
{{- fail (printf "\n\n%s in %s\n\n%s" $count .Values.name (join "\n" $problems)) -}}
{{- end -}}
{{- include "ddplaunch.check.upgrade" . -}}
{{- end -}}

{{- define "ddplaunch.problems" -}}
{{- include "ddplaunch.rules.units" . -}}
{{- include "ddplaunch.rules.network" . -}}
{{- include "ddplaunch.rules.command" . -}}
{{- include "ddplaunch.rules.variables" . -}}
{{- include "ddplaunch.rules.volumes" . -}}
{{- include "ddplaunch.rules.tolerations" . -}}
{{- include "ddplaunch.rules.slurm" . -}}
{{- include "ddplaunch.limits.job" . -}}
{{- include "ddplaunch.limits.names" . -}}
{{- include "ddplaunch.limits.resources" . -}}
{{- include "ddplaunch.limits.volumes" . -}}
{{- include "ddplaunch.limits.keys" . -}}
{{- include "ddplaunch.limits.scheduling" . -}}
{{- include "ddplaunch.limits.restricted" . -}}
{{- include "ddplaunch.limits.version" . -}}
{{- include "ddplaunch.limits.source" . -}}
{{- end -}}

{{/* Of a list of path, found, wanted and hint; with an empty line between it and the next. */}}
{{- define "ddplaunch.problem" -}}
{{- $words := list -}}
{{- range . }}{{ $words = append $words (replace "\n" "\\n" .) }}{{ end -}}
{{- printf "\n\n%s: found %s, wanted %s" (index $words 0) (index $words 1) (index $words 2) -}}
{{- with index $words 3 }}{{ printf "\n  hint: %s" . }}{{ end -}}
{{- end -}}

{{/* A job that runs cannot be changed, and the API server's own words for it are long and name no way out. */}}
{{- define "ddplaunch.check.upgrade" -}}
{{- if .Release.IsUpgrade -}}
{{- $namespace := .Values.kubernetes.namespace | default .Release.Namespace -}}
{{- $old := (lookup "v1" "ConfigMap" $namespace .Values.name | default dict).metadata | default dict -}}
{{- $new := include "ddplaunch.annotations" . | fromYaml -}}
{{- range $key, $value := $new -}}
{{- if and (dig "annotations" "ddplaunch/spec" "" $old) (ne $value (dig "annotations" $key "" $old)) -}}
{{- fail (printf "\n\nthe job %s has been started, and a job that has been started cannot be changed\n  hint: give the new one a name of its own, or remove the old one first: helm uninstall %s --namespace %s"
  $.Values.name $.Release.Name $.Release.Namespace) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
