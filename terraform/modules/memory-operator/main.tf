# The operator and the definition of the resource it serves.
#
# helm installs a resource definition but never upgrades it, so Terraform owns it here and helm is told to leave it alone.

resource "kubectl_manifest" "definition" {
  yaml_body = file("${var.chart}/crds/memoryindexes.yaml")

  server_side_apply = true
  force_conflicts   = true
  # Deleting the definition would delete every MemoryIndex in the cluster: it outlives the operator.
  apply_only = true
}

resource "helm_release" "operator" {
  name             = var.release
  chart            = var.chart
  namespace        = var.namespace
  create_namespace = true
  skip_crds        = true
  atomic           = true
  values           = [yamlencode(var.values)]

  depends_on = [kubectl_manifest.definition]
}
