"""The commands about what memories have to do with one another: which replace others, and which share concepts."""
