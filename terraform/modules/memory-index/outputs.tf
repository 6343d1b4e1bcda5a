output "name" {
  description = "Name of the MemoryIndex."
  value       = kubectl_manifest.memory_index.name
}

output "namespace" {
  description = "Namespace of the MemoryIndex."
  value       = kubectl_manifest.memory_index.namespace
}

output "embedder_url" {
  description = "URL at which pods of the namespace reach the embedder; null with a hosted provider, which has none."
  value = (
    try(var.spec.embedding.provider, "Local") != "Local" ? null :
    try(var.spec.embedder.external.url, "http://${var.name}-embedder.${var.namespace}.svc:8080")
  )
}
