// The process that holds a pod's namespaces. It needs nothing but the standard library.
module memory-index.dev/tools/pause

go 1.24.0
