variable "chart" {
  description = "Directory of the chart memory-index."
  type        = string
  nullable    = false
}

variable "operator_image" {
  description = "The operator's image, by digest, or by tag where the registry has none."
  type = object({
    repository = string
    tag        = optional(string, "")
    digest     = optional(string, "")
  })
  nullable = false

  validation {
    condition     = var.operator_image.tag != "" || var.operator_image.digest != ""
    error_message = "operator_image needs a digest (sha256:...) or a tag."
  }
}

variable "embedder_image" {
  description = "The embedder's image, by digest, or by tag where the registry has none."
  type = object({
    repository = string
    tag        = optional(string, "")
    digest     = optional(string, "")
  })
  nullable = false

  validation {
    condition     = var.embedder_image.tag != "" || var.embedder_image.digest != ""
    error_message = "embedder_image needs a digest (sha256:...) or a tag."
  }
}

variable "database_cluster" {
  description = "The CloudNativePG Cluster that holds the database claude_memory."
  type = object({
    name      = string
    namespace = string
  })
  nullable = false
}

variable "dsn_source" {
  description = "Where External Secrets finds username and password of the database: a ClusterSecretStore and an entry of it."
  type = object({
    store = string
    entry = string
  })
  nullable = false
}

variable "embedding" {
  description = "spec.embedding of the MemoryIndex: the model, its dimensions, and where its file comes from."
  type        = any
  nullable    = false

  validation {
    condition     = can(var.embedding.model) && can(tonumber(var.embedding.dimensions))
    error_message = "embedding needs model and dimensions."
  }
}

variable "gpu" {
  description = "The nodes with GPUs, the share of a GPU that the embedder takes as extended resources, and the number of the model's layers that it must hold (-1: all)."
  type = object({
    layers         = optional(number, -1)
    node_selector  = map(string)
    taint          = object({ key = string, value = string, effect = string })
    runtime_class  = optional(string)
    priority_class = optional(string)
    seat           = map(number)
  })
  nullable = false

  validation {
    condition     = contains(["NoSchedule", "PreferNoSchedule", "NoExecute"], var.gpu.taint.effect)
    error_message = "gpu.taint.effect must be NoSchedule, PreferNoSchedule or NoExecute."
  }
}
