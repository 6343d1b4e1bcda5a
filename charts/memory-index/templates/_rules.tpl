{{/*
What the operator may do where MemoryIndex objects live. Secrets can be read by name only: who cannot list them
cannot learn what others are called. No rule holds a wildcard.
*/}}
{{- define "memory-index.rules.workloads" -}}
- apiGroups: [memory-index.dev]
  resources: [memoryindexes]
  verbs: [get, list, watch, patch]
- apiGroups: [memory-index.dev]
  resources: [memoryindexes/status]
  verbs: [get, patch]
- apiGroups: [memory-index.dev]
  resources: [memoryindexes/finalizers]
  verbs: [update]
- apiGroups: [""]
  resources: [secrets]
  verbs: [get]
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch]
- apiGroups: [""]
  resources: [services]
  verbs: [get, list, create, patch, delete]
- apiGroups: [apps]
  resources: [deployments]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [batch]
  resources: [jobs]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [get, list, create, patch, delete]
{{- end }}

{{/* What it may do where databases live: ask for the extension; Clusters are only looked at. */}}
{{- define "memory-index.rules.databases" -}}
- apiGroups: [postgresql.cnpg.io]
  resources: [clusters]
  verbs: [get, list, watch]
- apiGroups: [postgresql.cnpg.io]
  resources: [databases]
  verbs: [get, list, watch, create, patch, delete]
{{- end }}
