"""Everything that talks to something: the Kubernetes API, the database, the embedder."""
