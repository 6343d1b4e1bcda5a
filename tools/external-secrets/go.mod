// Pins External Secrets (Apache-2.0), of which only the definition of ExternalSecret is used; nothing of it is built.
module memory-index.dev/tools/external-secrets

go 1.26.0

require github.com/external-secrets/external-secrets v1.3.2
