variable "name" {
  description = "Name of the MemoryIndex, from which the names of its Services, Jobs and Deployments are made."
  type        = string
  nullable    = false

  validation {
    condition     = can(regex("^[a-z]([-a-z0-9]{0,38}[a-z0-9])?$", var.name))
    error_message = "name becomes the name of a Service: use at most 40 lower-case letters, digits and '-', beginning with a letter."
  }
}

variable "namespace" {
  description = "Namespace of the MemoryIndex. It must exist; the Secret with the DSN lies in it and is labelled memory-index.dev/allow = dsn. A Cluster in another namespace lists this one in its annotation memory-index.dev/allowed-namespaces."
  type        = string
  nullable    = false

  validation {
    condition     = can(regex("^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$", var.namespace))
    error_message = "namespace must be a name of Kubernetes: at most 63 lower-case letters, digits and '-'."
  }
}

variable "labels" {
  description = "Labels of the MemoryIndex."
  type        = map(string)
  default     = {}
  nullable    = false
}

variable "annotations" {
  description = "Annotations of the MemoryIndex."
  type        = map(string)
  default     = {}
  nullable    = false
}

# Any object: the definition in the cluster describes each field and refuses what is malformed, so that a copy of it here
# could only be out of date.
variable "spec" {
  description = "spec of the MemoryIndex, as docs/configuration.md describes it. It names Secrets and never contains one."
  type        = any
  nullable    = false

  validation {
    condition     = can(var.spec.database.name) && can(var.spec.embedding.model)
    error_message = "spec needs database.name and embedding.model."
  }
}
