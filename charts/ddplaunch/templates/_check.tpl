{{/* What only Helm can refuse. The schema checks each value, the gate checks what follows from several of them. */}}

{{- define "ddplaunch.check" -}}
{{- $agent := .Files.Get "files/agent.pyz" -}}
{{- if not $agent -}}
{{- fail "\n\nthis chart does not contain the agent, which every pod runs\n  hint: install the packaged chart; `make chart` writes it from the repository" -}}{{- end -}}
{{- if and .Values.source (not .Values.sourceArchive) -}}
{{- fail "\n\nsource: found files that Helm cannot read, wanted sourceArchive as well\n  hint: `ddplaunch render FILE --to kubernetes --source-archive source.b64`, and --set-file sourceArchive=source.b64" -}}{{- end -}}
{{- $source := div (mul 3 (len (regexReplaceAll "[\\s=]" (.Values.sourceArchive | default "") ""))) 4 -}}
{{- if gt $source 650000 -}}
{{- fail (printf "\n\nsourceArchive: found %d bytes, wanted at most 650000\n  hint: list only the code under `source`; put data on a volume, and large code into the image" $source) -}}{{- end -}}
{{- $all := add $source (len $agent) (len (include "ddplaunch.jobFile" .)) -}}
{{- if gt $all 1048576 -}}
{{- fail (printf "\n\nsourceArchive and env: found %d bytes with the agent, wanted at most 1048576, the limit of a ConfigMap\n  hint: put code into the image or on a volume, and long values of `env` into files" $all) -}}{{- end -}}
{{- if and .Values.min_nodes (semverCompare "<1.31.0-0" .Capabilities.KubeVersion.Version) -}}
{{- fail (printf "\n\nmin_nodes: found Kubernetes %s, wanted 1.31 or newer for a range of nodes\n  hint: an older Job is complete only when all its pods are, and would wait for pods that never come" .Capabilities.KubeVersion.Version) -}}{{- end -}}
{{- /* The API server's own message for a job that has started is long, and offers no solution. */ -}}
{{- if .Release.IsUpgrade -}}
{{- $namespace := .Values.kubernetes.namespace | default .Release.Namespace -}}
{{- $old := dig "metadata" "annotations" dict (lookup "v1" "ConfigMap" $namespace .Values.name | default dict) -}}
{{- $new := include "ddplaunch.annotations" . | fromYaml -}}
{{- if and (hasKey $old "ddplaunch/spec") (ne (toJson $new) (pick $old "ddplaunch/spec" "ddplaunch/version" | toJson)) -}}
{{- fail (printf "\n\nthe job %s has been started, and a job that has been started cannot be changed\n  hint: give the new job another name, or remove the old one first: helm uninstall %s --namespace %s"
  .Values.name .Release.Name .Release.Namespace) -}}
{{- end -}}
{{- end -}}
{{- end -}}
