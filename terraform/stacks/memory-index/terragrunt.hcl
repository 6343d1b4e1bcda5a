# A Terragrunt unit: it belongs into an infrastructure repository whose root configuration generates the state backend and the
# providers `kubectl` and `helm`. The values here are the environment's; what is created is in main.tf.

include "root" {
  path = find_in_parent_folders()
}

# The database and the Secret store come first; nothing is read from their outputs.
dependencies {
  paths = ["../dbaas", "../external-secrets"]
}

inputs = {
  # Pinned by digest, so that what was reviewed is what runs.
  operator_image = {
    repository = "registry.home.example/memory-operator"
    digest     = "sha256:0000000000000000000000000000000000000000000000000000000000000000"
  }
  embedder_image = {
    repository = "registry.home.example/memory-embedder"
    digest     = "sha256:0000000000000000000000000000000000000000000000000000000000000000"
  }
  model_digest = "sha256:0000000000000000000000000000000000000000000000000000000000000000"
}
