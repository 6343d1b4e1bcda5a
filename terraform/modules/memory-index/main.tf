# One MemoryIndex. kubectl_manifest asks the API server for the resource only when applying, so that a plan works before the
# operator has ever been installed.

resource "kubectl_manifest" "memory_index" {
  yaml_body = yamlencode({
    apiVersion = "memory-index.dev/v1alpha1"
    kind       = "MemoryIndex"
    metadata = {
      name      = var.name
      namespace = var.namespace
      labels    = var.labels
    }
    spec = var.spec
  })

  server_side_apply = true
  # Waiting keeps the operator alive until it has taken its finalizer off.
  wait = true
}
