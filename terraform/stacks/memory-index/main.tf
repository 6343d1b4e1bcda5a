# The operator, and the index of one API's memories on a time-sliced GPU.

locals {
  namespace = "claude-memory"
  database  = "claude_memory"
  dsn       = { secret = "claude-memory-index-dsn", key = "DATABASE_URL" }
}

module "operator" {
  source = "../../modules/memory-operator"

  chart = var.chart
  values = {
    operator           = { image = var.operator_image }
    embedder           = { image = var.embedder_image }
    watchNamespaces    = [local.namespace]
    databaseNamespaces = [var.database_cluster.namespace]
    # The one Secret of that namespace that the operator may read; CloudNativePG names it after its Cluster.
    cnpg       = { authoritySecrets = ["${var.database_cluster.name}-ca"] }
    monitoring = { alertsConfigMap = { enabled = true } }
    permitted = {
      runtimeClasses  = compact([var.gpu.runtime_class])
      priorityClasses = compact([var.gpu.priority_class])
    }
  }
}

# The password passes from the store to the Secret inside the cluster: Terraform neither reads nor keeps it.
resource "kubectl_manifest" "dsn" {
  yaml_body = yamlencode({
    apiVersion = "external-secrets.io/v1"
    kind       = "ExternalSecret"
    metadata   = { name = local.dsn.secret, namespace = local.namespace }
    spec = {
      refreshInterval = "15m"
      secretStoreRef  = { name = var.dsn_source.store, kind = "ClusterSecretStore" }
      target = {
        name = local.dsn.secret
        template = {
          # Consent of the Secret's owner to its use as a connection string.
          metadata = { labels = { "memory-index.dev/allow" = "dsn" } }
          data = {
            (local.dsn.key) = join("", [
              "postgresql://{{ .username | urlquery }}:{{ .password | urlquery }}",
              "@${var.database_cluster.name}-rw.${var.database_cluster.namespace}.svc:5432/${local.database}",
            ])
          }
        }
      }
      dataFrom = [{ extract = { key = var.dsn_source.entry } }]
    }
  })

  server_side_apply = true
  force_conflicts   = true
}

module "claude_memory" {
  source = "../../modules/memory-index"

  name      = "claude-memory"
  namespace = local.namespace
  spec = {
    database = {
      cluster     = var.database_cluster
      name        = local.database
      credentials = { secretName = local.dsn.secret, key = local.dsn.key }
    }
    embedding = var.embedding
    embedder = merge(
      {
        gpuLayers    = var.gpu.layers
        nodeSelector = var.gpu.node_selector
        tolerations  = [merge({ operator = "Equal" }, var.gpu.taint)]
        resources = {
          requests = merge({ cpu = "100m", memory = "768Mi" }, var.gpu.seat)
          limits   = merge({ memory = "2Gi" }, var.gpu.seat)
        }
      },
      var.gpu.runtime_class == null ? {} : { runtimeClassName = var.gpu.runtime_class },
      var.gpu.priority_class == null ? {} : { priorityClassName = var.gpu.priority_class },
    )
  }

  # Created after, and destroyed before, what it needs: the operator to take its finalizer off, and the Secret.
  depends_on = [module.operator, kubectl_manifest.dsn]
}
