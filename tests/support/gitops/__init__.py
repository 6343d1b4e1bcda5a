"""What kstatus, Argo CD and Flux make of an object."""
