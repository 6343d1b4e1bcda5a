"""Systems that our users run beside us, met on a cluster: registries, GitOps tools, certificates, scalers, policies."""
