{{/* Labels that select the operator's pods; they must never change. */}}
{{- define "memory-index.selectorLabels" -}}
app.kubernetes.io/name: memory-operator
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{/* Labels of every object; those of the values win, and no key occurs twice. */}}
{{- define "memory-index.labels" -}}
{{- $recommended := dict
  "app.kubernetes.io/component" "operator"
  "app.kubernetes.io/part-of" "memory-index"
  "app.kubernetes.io/version" .Chart.AppVersion
  "app.kubernetes.io/managed-by" .Release.Service
  "helm.sh/chart" (printf "%s-%s" .Chart.Name (.Chart.Version | replace "+" "_")) -}}
{{- $common := .Values.commonLabels | default dict -}}
{{- toYaml (merge (include "memory-index.selectorLabels" . | fromYaml) $common $recommended) -}}
{{- end }}

{{/* Labels of an object that has some of its own, which win. Argument: list of these labels and the root. */}}
{{- define "memory-index.labelsWith" -}}
{{- toYaml (merge (index . 0 | default dict | deepCopy) (include "memory-index.labels" (index . 1) | fromYaml)) -}}
{{- end }}

{{/* Annotations of the operator's pod; those of the values win. */}}
{{- define "memory-index.podAnnotations" -}}
{{- $own := dict "kubectl.kubernetes.io/default-container" "operator" -}}
{{- if eq .Values.monitoring.scrape "Annotations" -}}
{{- $own = merge $own (dict
  "prometheus.io/scrape" "true" "prometheus.io/port" "9090" "prometheus.io/path" "/metrics") -}}
{{- end -}}
{{- toYaml (merge (.Values.operator.podAnnotations | default dict | deepCopy) $own) -}}
{{- end }}

{{- define "memory-index.serviceAccountName" -}}
{{ .Values.serviceAccount.name | default .Values.fullnameOverride }}
{{- end }}

{{/*
An image reference: repository and digest or, without one, tag; where the values name neither, the digest that a released
chart was published with. A registry of the parent chart's takes the place of the repository's own. Argument: list of
"operator" or "embedder" and the root.
*/}}
{{- define "memory-index.image" -}}
{{- $name := index . 0 -}}
{{- $root := index . 1 -}}
{{- $image := (index $root.Values $name).image -}}
{{- $published := index $root.Chart.Annotations (printf "memory-index.dev/digest-of-memory-%s" $name) -}}
{{- $repository := $image.repository -}}
{{- with ($root.Values.global | default dict).imageRegistry -}}
{{- $repository = printf "%s/%s" . (regexReplaceAll "^[^/]+/" $image.repository "") -}}
{{- end -}}
{{- with $image.digest | default (empty $image.tag | ternary $published "") -}}
{{ $repository }}@{{ . }}
{{- else -}}
{{ $repository }}:{{ $image.tag | default $root.Chart.AppVersion }}
{{- end -}}
{{- end }}

{{/* The pull secrets of the operator's pod: those of the values and, once each, those of a parent chart. */}}
{{- define "memory-index.imagePullSecrets" -}}
{{- $all := list -}}
{{- range concat (.Values.imagePullSecrets | default list) ((.Values.global | default dict).imagePullSecrets | default list) -}}
{{- $all = append $all (kindIs "string" . | ternary (dict "name" .) .) -}}
{{- end -}}
{{ $all | uniq | toJson }}
{{- end }}

{{/* Whether the cluster assigns user, group and fsGroup to each pod: "assigned", else "fixed". */}}
{{- define "memory-index.user" -}}
{{- $adapt := ((.Values.compatibility | default dict).openshift | default dict).adaptSecurityContext | default "auto" -}}
{{- $openshift := .Capabilities.APIVersions.Has "security.openshift.io/v1" -}}
{{- or (eq $adapt "force") (and (eq $adapt "auto") $openshift) | ternary "assigned" "fixed" -}}
{{- end }}

{{/* Refuse what would bound the operator's rights if it did not serve all namespaces, and has no effect where it does. */}}
{{- define "memory-index.requireWatchNamespaces" -}}
{{- if and (not .Values.watchNamespaces) (or .Values.databaseNamespaces .Values.cnpg.authoritySecrets) -}}
{{- fail "databaseNamespaces and cnpg.authoritySecrets have no effect without watchNamespaces, since the operator then has its rights in every namespace: name the namespaces of the MemoryIndex objects in watchNamespaces, or leave both out" -}}
{{- end -}}
{{- end }}

{{/* Namespaces in which the operator may change CloudNativePG's objects, when it does not watch all. */}}
{{- define "memory-index.databaseNamespaces" -}}
{{ concat .Values.watchNamespaces (.Values.databaseNamespaces | default list) | uniq | toJson }}
{{- end }}

{{/* What authors of a MemoryIndex may choose, as the operator's setting. */}}
{{- define "memory-index.permitted" -}}
{{- $permitted := .Values.permitted | default dict -}}
{{- $none := list -}}
{{ dict
  "image_prefixes" ($permitted.imagePrefixes | default $none)
  "priority_classes" ($permitted.priorityClasses | default $none)
  "runtime_classes" ($permitted.runtimeClasses | default $none)
  "pod_annotation_prefixes" ($permitted.podAnnotationPrefixes | default $none)
  "pod_label_prefixes" ($permitted.podLabelPrefixes | default $none)
  "environment_variables" ($permitted.environmentVariables | default $none)
  "external_hosts" ($permitted.externalHosts | default $none)
  "database_hosts" ($permitted.databaseHosts | default $none) | toJson }}
{{- end }}

{{/* How model files are fetched, as the operator's setting. */}}
{{- define "memory-index.fetch" -}}
{{- $fetch := .Values.fetch | default dict -}}
{{- $proxy := $fetch.proxy | default dict -}}
{{- $bundle := $fetch.caBundle | default dict -}}
{{ dict
  "proxy" ($proxy.url | default "")
  "no_proxy" ($proxy.noProxy | default list)
  "proxied_hosts" ($proxy.hosts | default list)
  "ca_config_map" ($bundle.configMap | default "")
  "ca_key" ($bundle.key | default "ca-bundle.crt") | toJson }}
{{- end }}

{{/*
How replicas are spread: as the values say, or else over nodes where possible. A constraint without a selector counts
the operator's own pods.
*/}}
{{- define "memory-index.spread" -}}
{{- $own := dict "matchLabels" (include "memory-index.selectorLabels" . | fromYaml) -}}
{{- $nodes := dict "maxSkew" 1 "topologyKey" "kubernetes.io/hostname" "whenUnsatisfiable" "ScheduleAnyway" -}}
{{- $all := list -}}
{{- range .Values.operator.topologySpreadConstraints | default (list $nodes) -}}
{{- $all = append $all (hasKey . "labelSelector" | ternary . (set (deepCopy .) "labelSelector" $own)) -}}
{{- end -}}
{{ toYaml $all }}
{{- end }}
