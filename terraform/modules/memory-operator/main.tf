# The operator and the definition of the resource that it serves.
#
# helm installs a resource definition but never upgrades it. Terraform therefore owns the definition, and helm is told to
# leave it alone.

resource "kubectl_manifest" "definition" {
  yaml_body = file("${var.chart}/crds/memoryindexes.yaml")

  server_side_apply = true
  force_conflicts   = true
  # Deleting the definition would delete every MemoryIndex of the cluster, so it stays when the operator is destroyed.
  apply_only = true
}

# helm creates a namespace but never deletes it; a namespace of Terraform's own is removed with the operator.
resource "kubectl_manifest" "namespace" {
  count = var.create_namespace ? 1 : 0

  yaml_body = yamlencode({
    apiVersion = "v1"
    kind       = "Namespace"
    metadata = {
      name   = var.namespace
      labels = { "pod-security.kubernetes.io/enforce" = "restricted" }
    }
  })

  server_side_apply = true
  force_conflicts   = true
  wait              = true
}

resource "helm_release" "operator" {
  name      = var.release
  chart     = var.chart
  namespace = var.namespace
  skip_crds = true
  # A release whose operator does not become ready is rolled back instead of left half done.
  atomic  = true
  timeout = var.timeout_seconds
  values  = [yamlencode(var.values)]

  depends_on = [kubectl_manifest.definition, kubectl_manifest.namespace]
}
