output "namespace" {
  description = "Namespace of the operator."
  value       = helm_release.operator.namespace
}
