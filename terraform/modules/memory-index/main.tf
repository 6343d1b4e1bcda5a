# One MemoryIndex. kubectl_manifest asks the API server about the resource only when it applies, so that a plan works
# before the operator has ever been installed.

resource "kubectl_manifest" "memory_index" {
  yaml_body = yamlencode({
    apiVersion = "memory-index.dev/v1alpha1"
    kind       = "MemoryIndex"
    metadata = {
      name        = var.name
      namespace   = var.namespace
      labels      = var.labels
      annotations = var.annotations
    }
    spec = var.spec
  })

  server_side_apply = true
  # What somebody changed beside Terraform is in the plan, and an apply takes it back; without this it would fail.
  force_conflicts = true
  # Destroying waits until the object is gone, so that the operator is still there to take its finalizer off.
  wait = true
}
