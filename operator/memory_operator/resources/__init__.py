"""Pure builders of every object that the operator owns."""
