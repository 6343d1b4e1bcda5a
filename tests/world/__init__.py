"""Systems that users run beside us, tried on a cluster: registries, GitOps tools, certificates, scalers, policies."""
