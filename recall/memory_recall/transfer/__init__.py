"""Import and export of memories as JSON lines."""
