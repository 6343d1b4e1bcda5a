variable "name" {
  description = "Name of the MemoryIndex."
  type        = string

  validation {
    condition     = can(regex("^[a-z]([-a-z0-9]{0,38}[a-z0-9])?$", var.name))
    error_message = "name becomes the name of a Service: use at most 40 lower-case letters, digits and '-', beginning with a letter."
  }
}

variable "namespace" {
  description = "Namespace of the MemoryIndex, which must exist and hold the Secret with the database's DSN, labelled memory-index.dev/allow = dsn. A Cluster in another namespace must list this one in its annotation memory-index.dev/allowed-namespaces."
  type        = string
}

variable "labels" {
  description = "Labels of the MemoryIndex."
  type        = map(string)
  default     = {}
}

variable "spec" {
  description = "spec of the MemoryIndex as docs/configuration.md describes it. The API server refuses what is malformed and says what to do."
  type        = any

  validation {
    condition     = can(var.spec.database.name) && can(var.spec.embedding.model)
    error_message = "spec needs database.name and embedding.model."
  }
}
