variable "chart" {
  description = "Directory of the chart memory-index. A chart in a registry cannot be used, since its resource definition is read when planning."
  type        = string
  nullable    = false

  validation {
    condition     = !can(regex("^[a-z]+://", var.chart))
    error_message = "chart must be a directory: copy charts/memory-index into your repository and name its path."
  }
}

variable "namespace" {
  description = "Namespace of the operator."
  type        = string
  default     = "memory-index-system"
  nullable    = false

  validation {
    condition     = can(regex("^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$", var.namespace))
    error_message = "namespace must be a name of Kubernetes: at most 63 lower-case letters, digits and '-'."
  }
}

variable "create_namespace" {
  description = "Whether the namespace is created and destroyed with the operator. Set it to false for a namespace that belongs to another stack."
  type        = bool
  default     = true
  nullable    = false
}

variable "release" {
  description = "Name of the helm release."
  type        = string
  default     = "memory-index"
  nullable    = false

  validation {
    condition     = can(regex("^[a-z0-9]([-a-z0-9]{0,51}[a-z0-9])?$", var.release))
    error_message = "release must be at most 53 lower-case letters, digits and '-'."
  }
}

variable "timeout_seconds" {
  description = "Seconds within which the operator must become ready; after them the release is rolled back."
  type        = number
  default     = 300
  nullable    = false

  validation {
    condition     = var.timeout_seconds >= 30
    error_message = "timeout_seconds must be at least 30, since images are pulled within it."
  }
}

variable "values" {
  description = "Values of the chart, as docs/configuration.md lists them. The chart's schema refuses any other."
  type        = any
  default     = {}
  nullable    = false
}
