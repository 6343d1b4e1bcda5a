{{/*
What the operator may do in the namespaces of MemoryIndex objects, beside what "memory-index.rules.deletion" grants. It
can read a Secret by name only: without the right to list them it cannot learn the names of others. No rule holds a
wildcard.
*/}}
{{- define "memory-index.rules.workloads" -}}
- apiGroups: [memory-index.dev]
  resources: [memoryindexes/status]
  verbs: [patch]
- apiGroups: [memory-index.dev]
  resources: [memoryindexes/finalizers]
  verbs: [update]
- apiGroups: [""]
  resources: [secrets]
  verbs: [get]
- apiGroups: [""]
  resources: [pods]
  verbs: [list, watch]
- apiGroups: [""]
  resources: [services, persistentvolumeclaims, configmaps]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [apps]
  resources: [deployments]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [apps]
  resources: [replicasets]
  verbs: [list, watch]
- apiGroups: [batch]
  resources: [jobs]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, watch, create, patch, delete]
{{- end }}

{{/*
What is cluster-wide in either mode, so that a namespace can be deleted, whatever of it has gone before: seeing that it
is being deleted, and taking the finalizer off. A Role in that namespace would not do, since it may be deleted before
the MemoryIndex objects.
*/}}
{{- define "memory-index.rules.deletion" -}}
- apiGroups: [""]
  resources: [namespaces]
  verbs: [get]
- apiGroups: [memory-index.dev]
  resources: [memoryindexes]
  verbs: [get, list, watch, patch]
{{- end }}

{{/*
What it may do in the namespaces of databases: request the extension, unless that is withheld; Clusters are only read,
and so are the Services that connection URIs name and the certificate authority of a Cluster, whose Secret also holds the
authority's key. Bound to namespaces, it polls these objects in place of watching them. Events say what the operator did
or leaves behind; these rules are also granted where MemoryIndex objects are, so no other rule names Events.
*/}}
{{- define "memory-index.rules.databases" -}}
- apiGroups: [postgresql.cnpg.io]
  resources: [clusters]
  verbs: [get{{ if not .Values.watchNamespaces }}, list, watch{{ end }}]
- apiGroups: [postgresql.cnpg.io]
  resources: [databases]
  verbs:
    - get
    - list
    {{- if not .Values.watchNamespaces }}
    - watch
    {{- end }}
    {{- if .Values.cnpg.manageDatabases }}
    - create
    - patch
    - delete
    {{- end }}
{{- if .Values.watchNamespaces }}
- apiGroups: [""]
  resources: [services]
  verbs: [get]
- apiGroups: [""]
  resources: [secrets]
  {{- with .Values.cnpg.authoritySecrets }}
  resourceNames: {{ toJson . }}
  {{- end }}
  verbs: [get]
{{- end }}
- apiGroups: [""]
  resources: [events]
  verbs: [create]
{{- end }}

{{/* The Lease by which one of several replicas is elected, in the release's namespace. A new one has no name to grant. */}}
{{- define "memory-index.rules.lease" -}}
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [create]
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  resourceNames: [{{ .Values.fullnameOverride | quote }}]
  verbs: [get, update]
{{- end }}
