"""Creates and deletes a MemoryIndex again and again, while each time one request of the operator fails in one way."""
