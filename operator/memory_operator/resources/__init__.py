"""Pure builders of every object the operator owns."""
