output "name" {
  description = "Name of the MemoryIndex."
  value       = kubectl_manifest.memory_index.name
}

output "namespace" {
  description = "Namespace of the MemoryIndex."
  value       = kubectl_manifest.memory_index.namespace
}

output "embedder_url" {
  description = "URL at which pods of the namespace reach the embedder; that of an external one as it is given. Of another object's embedder with TLS, which is not known here, status.embedder.url has it."
  value = try(
    var.spec.embedder.external.url,
    "http://${var.spec.embedder.ref.name}-embedder.${try(var.spec.embedder.ref.namespace, var.namespace)}.svc:8080",
    "${can(var.spec.embedder.tls.secretName) ? "https" : "http"}://${var.name}-embedder.${var.namespace}.svc:8080",
  )
}
