# A Terragrunt unit: it belongs into an infrastructure repository whose root configuration generates the state backend
# and the providers `kubectl` and `helm`. The values here are the environment's; what is created is in main.tf.

include "root" {
  path = find_in_parent_folders()
}

# Owns the CloudNativePG Cluster, which many databases share and which lists the namespace claude-memory in its
# annotation memory-index.dev/allowed-namespaces, and the Database object of claude_memory, which has the extension
# `vector`: the operator creates one only for the database that a Cluster was created with.
dependency "dbaas" {
  config_path = "../dbaas"

  # For a plan before that stack was ever applied. An apply takes the stack's own outputs or refuses.
  mock_outputs = {
    cluster_name      = "pg-cluster"
    cluster_namespace = "dbaas"
  }
  mock_outputs_allowed_terraform_commands = ["init", "validate", "plan"]
}

# Owns the definition of ExternalSecret and the store that the DSN comes from.
dependency "external-secrets" {
  config_path  = "../external-secrets"
  skip_outputs = true
}

# Owns the namespace claude-memory and the API that recalls.
dependency "claude-memory" {
  config_path  = "../claude-memory"
  skip_outputs = true
}

inputs = {
  chart = "${get_repo_root()}/charts/memory-index"

  # Pinned by digest, so that what was reviewed is what runs.
  operator_image = {
    repository = "registry.home.example/memory-operator"
    digest     = "sha256:0000000000000000000000000000000000000000000000000000000000000000"
  }
  # The image for GPUs (`make images CUDA=1`); the one for CPUs finds no GPU and does not become ready (GpuNotUsed).
  embedder_image = {
    repository = "registry.home.example/memory-embedder"
    digest     = "sha256:0000000000000000000000000000000000000000000000000000000000000000"
  }

  database_cluster = {
    name      = dependency.dbaas.outputs.cluster_name
    namespace = dependency.dbaas.outputs.cluster_namespace
  }

  # What External Secrets makes the DSN of: an entry with the properties username and password.
  dsn_source = {
    store = "vault-database"
    entry = "static-creds/pg-claude-memory"
  }

  embedding = {
    model      = "bge-large-en-v1.5"
    dimensions = 1024
    source = {
      pvc = {
        claimName = "embedding-models"
        path      = "bge-large-en-v1.5-f16.gguf"
        digest    = "sha256:0000000000000000000000000000000000000000000000000000000000000000"
      }
    }
  }

  gpu = {
    node_selector  = { "nvidia.com/gpu.present" = "true" }
    taint          = { key = "nvidia.com/gpu", value = "true", effect = "NoSchedule" }
    runtime_class  = "nvidia"
    priority_class = "gpu-workload"
    # A slice of a GPU is time, not memory: what admission holds a pod to is its memory seat, an extended resource of
    # this cluster in MiB.
    seat = {
      "nvidia.com/gpu"             = 1
      "example.com/gpu-memory-mib" = 2000
    }
  }
}
