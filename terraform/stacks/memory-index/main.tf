# The operator, and the index of one API's memories on a time-sliced GPU.
#
# The stack that owns the CloudNativePG Cluster annotates it with memory-index.dev/allowed-namespaces = "claude-memory", and
# whatever writes the Secret claude-memory-db-creds labels it with memory-index.dev/allow = "dsn".

variable "operator_image" {
  description = "The operator's image."
  type = object({
    repository = string
    digest     = string
  })
}

variable "embedder_image" {
  description = "The embedder's image."
  type = object({
    repository = string
    digest     = string
  })
}

variable "model_digest" {
  description = "SHA-256 of the model file on the volume, as sha256:<hex>."
  type        = string
}

locals {
  namespace = "claude-memory"

  # A GPU slice is time, not memory: the seat, an extended resource of this cluster in MiB, is what admission holds a pod to.
  gpu_seat = {
    "nvidia.com/gpu"             = 1
    "example.com/gpu-memory-mib" = 1600
  }
}

module "operator" {
  source = "../../modules/memory-operator"

  chart = "${path.module}/../../../charts/memory-index"
  values = {
    operator   = { image = var.operator_image }
    embedder   = { image = var.embedder_image }
    monitoring = { alertsConfigMap = { enabled = true } }
    permitted  = { runtimeClasses = ["nvidia"], priorityClasses = ["gpu-workload"] }
  }
}

module "claude_memory" {
  source = "../../modules/memory-index"

  name      = "claude-memory"
  namespace = local.namespace
  spec = {
    database = {
      cluster     = { name = "pg-cluster", namespace = "dbaas" }
      name        = "claude_memory"
      credentials = { secretName = "claude-memory-db-creds", key = "DATABASE_URL" }
    }
    embedding = {
      model      = "bge-large-en-v1.5"
      dimensions = 1024
      source = {
        pvc = {
          claimName = "embedding-models"
          path      = "bge-large-en-v1.5-f16.gguf"
          digest    = var.model_digest
        }
      }
    }
    embedder = {
      nodeSelector      = { "nvidia.com/gpu.present" = "true" }
      tolerations       = [{ key = "nvidia.com/gpu", operator = "Equal", value = "true", effect = "NoSchedule" }]
      runtimeClassName  = "nvidia"
      priorityClassName = "gpu-workload"
      resources = {
        requests = merge({ cpu = "100m", memory = "768Mi" }, local.gpu_seat)
        limits   = merge({ memory = "2Gi" }, local.gpu_seat)
      }
    }
  }

  depends_on = [module.operator]
}

output "embedder_url" {
  description = "Where the API reaches the embedder."
  value       = module.claude_memory.embedder_url
}
