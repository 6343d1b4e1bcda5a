variable "chart" {
  description = "Directory of the chart memory-index. A chart from a registry cannot be used, since its resource definition must be at hand when planning."
  type        = string
}

variable "namespace" {
  description = "Namespace of the operator, created when it is missing."
  type        = string
  default     = "memory-index-system"
}

variable "release" {
  description = "Name of the helm release."
  type        = string
  default     = "memory-index"
}

variable "values" {
  description = "Values of the chart, as docs/configuration.md lists them; values.schema.json refuses what it does not know."
  type        = any
  default     = {}
}
