output "embedder_url" {
  description = "URL at which the API reaches the embedder."
  value       = module.claude_memory.embedder_url
}
