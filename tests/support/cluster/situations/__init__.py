"""Puts MemoryIndex objects into situations, such as a missing Secret, and checks what status and GitOps tools say."""
