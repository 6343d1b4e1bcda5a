output "namespace" {
  description = "Namespace of the operator."
  value       = helm_release.operator.namespace
}

output "release" {
  description = "Name of the helm release."
  value       = helm_release.operator.name
}
