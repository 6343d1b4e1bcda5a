"""The table of malformed MemoryIndex objects: one edit of a good object each, and what the API server must answer.

A case is data, not code: dotted paths into the good object, the values put there (or `REMOVED`, which takes the field
out), and a fragment of the message, chosen from its remedy, so that a rule that does not say what to do fails its test.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.e2e.crd_objects import CUSTOM, DIGEST, EXTERNAL, LLAMA, PLAIN, REFERENCE, REMOVED, VOYAGE


@dataclass(frozen=True)
class Case:
    """One malformed object: what is edited in the good one, and what the refusal must say."""

    name: str
    edits: Mapping[str, Any]
    says: str
    before: Mapping[str, Any] = field(default_factory=dict)
    """For a transition: the edits that made the stored object."""


IDENTITY = (
    Case("a name too long for its Service", {"metadata.name": "m" * 41}, "use at most 40 lower-case letters"),
    Case("a name with a dot", {"metadata.name": "claude.memory"}, "becomes the name of a Service"),
    Case("an unknown field", {"spec.embeding": {"model": "x"}}, 'unknown field "spec.embeding"'),
    Case("no database", {"spec.database": REMOVED}, "spec.database: Required value"),
    Case("no embedding", {"spec.embedding": REMOVED}, "spec.embedding: Required value"),
    Case("an unknown deletion policy", {"spec.deletionPolicy": "Drop"}, 'supported values: "Retain", "Delete"'),
    Case("suspend as text", {"spec.suspend": "yes"}, "spec.suspend"),
)

_DSN = "postgresql://memory:hunter2@pg-cluster-rw.dbaas:5432/claude_memory"

DATABASE = (
    Case(
        "existing vectors of which nothing is said that we know",
        {"spec.database.existingVectors": "Trust"},
        "must be Refuse, Keep (embedding.model made these vectors from the present texts) or Discard",
    ),
    Case("a DSN as Secret name", {"spec.database.credentials.secretName": _DSN}, "put the DSN into a Secret and give"),
    Case(
        "a DSN as key", {"spec.database.credentials.key": _DSN}, "put it into the Secret and give the name of the key"
    ),
    Case("a DSN as database name", {"spec.database.name": _DSN}, "give only the database's name here"),
    Case(
        "a libpq DSN as cluster name",
        {"spec.database.cluster.name": "host=pg password=hunter2"},
        "give only the Cluster object's name here",
    ),
    Case("a Secret name with blanks", {"spec.database.credentials.secretName": "my creds"}, "the name of a Secret"),
    Case("a key with a slash", {"spec.database.credentials.key": "a/b"}, "must be a key of the Secret"),
    Case("a service as cluster", {"spec.database.cluster.name": "pg-cluster-rw.dbaas"}, "without a domain"),
    Case("a namespace with a dot", {"spec.database.cluster.namespace": "dbaas.svc"}, "must be a namespace's name"),
    Case("a cluster without a name", {"spec.database.cluster.name": REMOVED}, "cluster.name: Required value"),
    Case("no database name", {"spec.database.name": REMOVED}, "database.name: Required value"),
    Case("a database name with a quote", {"spec.database.name": 'x"; drop'}, "at most 63 letters"),
    Case("a template of databases", {"spec.database.name": "template1"}, "of which Postgres copies new databases"),
    Case("a system database of a Cluster", {"spec.database.name": "postgres"}, "which CloudNativePG does not manage"),
    Case(
        "a template of databases of a plain Postgres",
        {**PLAIN, "spec.database.name": "template0"},
        "of which Postgres copies new databases",
    ),
    Case("a table with two dots", {"spec.database.table": "app.public.memories"}, "must be TABLE or SCHEMA.TABLE"),
    Case("a quoted table", {"spec.database.table": '"Memories"'}, "must be TABLE or SCHEMA.TABLE"),
    Case("a table with a control character", {"spec.database.table": "me\nmories"}, "must be TABLE or SCHEMA.TABLE"),
    Case("a table name too long", {"spec.database.table": "t" * 64}, "at most 63"),
    Case("a table of Postgres in a schema", {"spec.database.table": "app.pg_class"}, "pg_* belongs to Postgres"),
    Case("a text of no column", {"spec.database.columns.content": []}, "should have at least 1 items"),
    Case("a key without a name", {"spec.database.columns.id": ""}, "should be at least 1 chars long"),
    Case("a column's name too long", {"spec.database.columns.tags": "t" * 501}, "may not be more than 500"),
    Case("another sensitivity", {"spec.database.sensitivity": "Row"}, "Unsupported value"),
    Case("our own table", {"spec.database.table": "memory_index_state"}, "name the table that holds your memories"),
    Case(
        "a plain Postgres without a Secret",
        {
            "spec.database.cluster": REMOVED,
            "spec.database.credentials": REMOVED,
            "spec.database.extension": {"management": "Observe"},
        },
        "name the Secret that holds its DSN",
    ),
    Case(
        "a plain Postgres that CNPG is to extend",
        {"spec.database.cluster": REMOVED},
        "set database.extension.management to Observe",
    ),
    Case(
        "an unknown management",
        {"spec.database.extension.management": "Install"},
        '"Database", "Observe"',
    ),
    Case("an image tag as version", {"spec.database.extension.minimumVersion": "v0.8.4-pg16"}, "such as 0.8.4"),
    Case(
        "a client certificate without a Secret",
        {"spec.database.credentials.clientCertificate": {}},
        "secretName: Required value",
    ),
    Case(
        "a client certificate in place of the name of its Secret",
        {"spec.database.credentials.clientCertificate": {"secretName": "-----BEGIN CERTIFICATE-----"}},
        "the certificate and its key belong in the Secret",
    ),
    Case("an unknown TLS mode", {"spec.database.tls": {"mode": "verify-full"}}, '"VerifyFull", "VerifyCA", "Require"'),
    Case(
        "an authority that nothing is verified by",
        {"spec.database.tls": {"mode": "Require", "caSecret": {"name": "ca"}}},
        "leave caSecret out, or use VerifyFull or VerifyCA",
    ),
    Case("an authority without a name", {"spec.database.tls": {"caSecret": {"key": "x"}}}, "name: Required value"),
    Case(
        "an authority's file",
        {"spec.database.tls": {"caSecret": {"name": "/etc/ca.crt"}}},
        "must be the name of a Secret",
    ),
    Case(
        "an authority's key with a slash",
        {"spec.database.tls": {"caSecret": {"name": "ca", "key": "a/b"}}},
        "must be a key of the Secret",
    ),
    Case("a pgvector without halfvec", {"spec.database.extension.minimumVersion": "0.6.2"}, "must be 0.7.0 or later"),
)

EMBEDDING = (
    Case("no model", {"spec.embedding.model": REMOVED}, "embedding.model: Required value"),
    Case(
        "an unknown model", {"spec.embedding.model": "gpt-embed"}, "no model profile is called gpt-embed: use bge-large"
    ),
    Case(
        "a model with its organisation",
        {"spec.embedding.model": "BAAI/bge-large-en-v1.5"},
        "no organisation, path or URL",
    ),
    Case("dimensions of another model", {"spec.embedding.dimensions": 768}, "bge-large-en-v1.5 yields vectors of 1024"),
    Case(
        "fewer dimensions than a model was trained for",
        {"spec.embedding": {"model": "Qwen3-Embedding-0.6B", "dimensions": 16}},
        "yields vectors of 32 to 1024 dimensions",
    ),
    Case(
        "the default dimensions for a small model",
        {"spec.embedding": {"model": "all-MiniLM-L6-v2"}},
        "all-MiniLM-L6-v2 yields vectors of 384 dimensions: set embedding.dimensions",
    ),
    Case("too many dimensions", {**CUSTOM, "spec.embedding.dimensions": 4096}, "use a model with smaller vectors"),
    Case("no dimensions at all", {**CUSTOM, "spec.embedding.dimensions": 0}, "between 1 and 4000"),
    Case("a custom model without pooling", {**CUSTOM, "spec.embedding.pooling": REMOVED}, "set embedding.pooling"),
    Case("a custom model without maxTokens", {**CUSTOM, "spec.embedding.maxTokens": REMOVED}, "embedding.maxTokens"),
    Case("a custom model from nowhere", {**CUSTOM, "spec.embedding.source": REMOVED}, "say where its GGUF file is"),
    Case("unknown pooling", {**CUSTOM, "spec.embedding.pooling": "max"}, 'supported values: "mean", "cls", "last"'),
    Case("pooling of a known model", {"spec.embedding.pooling": "mean"}, "come from the model's profile: remove them"),
    Case("a prefix of a known model", {"spec.embedding.queryPrefix": "query: "}, "or set embedding.model to custom"),
    Case(
        "Voyage without consent",
        {**VOYAGE, "spec.embedding.queryEgress": REMOVED},
        "accept that with embedding.queryEgress",
    ),
    Case(
        "an authority for plain HTTP",
        {"spec.embedder.external": {"url": "http://embedder.ml.svc:8080", "caSecret": {"name": "ca"}}},
        "plain HTTP has no certificates",
    ),
    Case("a prefix for Voyage", {**VOYAGE, "spec.embedding.queryPrefix": "query: "}, "remove embedding.queryPrefix"),
    Case(
        "pooling of a model that somebody else serves",
        {**VOYAGE, "spec.embedding.pooling": "mean"},
        "only model custom has embedding.pooling",
    ),
    Case(
        "a key in place of its Secret's name",
        {**VOYAGE, "spec.embedder.external.apiKey": {"secretName": "pa-AbCdEf_123"}},
        "the key itself belongs in the Secret",
    ),
)

_HTTP = "spec.embedding.source.http"
_FETCHED = {"url": "https://a.example/m.gguf", "sha256": "a1" * 32}
_IMAGE = {"reference": "registry.example/models/bge:1", "path": "/models/bge.gguf", "digest": DIGEST}
_CLAIMED = {"claimName": "models", "path": "m.gguf", "digest": DIGEST}

SOURCE = (
    Case("an empty source", {"spec.embedding.source": {}}, "set exactly one of embedding.source.image"),
    Case(
        "two sources",
        {
            f"{_HTTP}.url": "https://a.example/m.gguf",
            f"{_HTTP}.sha256": "a1" * 32,
            "spec.embedding.source.image": _IMAGE,
        },
        "set exactly one of embedding.source.image",
    ),
    Case("an unverified download", {f"{_HTTP}.url": "https://a.example/m.gguf"}, "never used unverified"),
    Case(
        "a shortened checksum",
        {f"{_HTTP}": {"url": "https://a.example/m", "sha256": "a1b2"}},
        "`sha256sum FILE` prints them",
    ),
    Case("a file URL", {f"{_HTTP}": {"url": "file:///m.gguf", "sha256": "a1" * 32}}, "begins with https:// or http://"),
    Case(
        "a password in a URL",
        {f"{_HTTP}": {"url": "https://me:secret@a.example/m.gguf", "sha256": "a1" * 32}},
        "must not hold a user name or password",
    ),
    Case(
        "a volume size in another unit",
        {f"{_HTTP}": {**_FETCHED, "volume": {"size": "9GB"}}},
        "must be a whole number of Mi, Gi or Ti",
    ),
    Case(
        "a StorageClass that none can be",
        {f"{_HTTP}": {**_FETCHED, "volume": {"storageClassName": "Fast!"}}},
        "must be the name of a StorageClass",
    ),
    Case(
        "a volume that nothing can write",
        {f"{_HTTP}": {**_FETCHED, "volume": {"accessModes": ["ReadOnlyMany"]}}},
        "ReadWriteMany",
    ),
    Case(
        "an image as URL",
        {"spec.embedding.source.image": {**_IMAGE, "reference": "https://r.example/m"}},
        "without https://",
    ),
    Case(
        "a relative path in an image",
        {"spec.embedding.source.image": {**_IMAGE, "path": "m.gguf"}},
        "an absolute path inside",
    ),
    Case(
        "safetensors", {"spec.embedding.source.image": {**_IMAGE, "path": "/m.safetensors"}}, "memory-embedder convert"
    ),
    Case(
        "a digest without its kind",
        {"spec.embedding.source.image": {**_IMAGE, "digest": "a1" * 32}},
        "must be sha256:<64",
    ),
    Case(
        "an image without a digest",
        {"spec.embedding.source.image": {"reference": "r/m", "path": "/m.gguf"}},
        "digest: Required",
    ),
    Case(
        "a claim of another namespace",
        {"spec.embedding.source.pvc": {**_CLAIMED, "claimName": "dbaas/models"}},
        "must be the name of a PersistentVolumeClaim in this namespace",
    ),
    Case(
        "safetensors in a volume",
        {"spec.embedding.source.pvc": {**_CLAIMED, "path": "m.safetensors"}},
        "memory-embedder convert",
    ),
    Case(
        "a digest without its kind, of a file in a volume",
        {"spec.embedding.source.pvc": {**_CLAIMED, "digest": "a1" * 32}},
        "must be sha256:<64",
    ),
    Case(
        "a path out of the volume",
        {"spec.embedding.source.pvc": {**_CLAIMED, "path": "../m.gguf"}},
        "relative to the volume's root",
    ),
)

WORK = (
    Case(
        "an index that pgvector refuses",
        {"spec.index": {"m": 48, "efConstruction": 64}},
        "at least twice m; raise index",
    ),
    Case("m out of bounds", {"spec.index": {"m": 101, "efConstruction": 300}}, "less than or equal to 100"),
    Case("efConstruction out of bounds", {"spec.index.efConstruction": 1001}, "less than or equal to 1000"),
    Case("no backfill pods", {"spec.backfill.parallelism": 0}, "greater than or equal to 1"),
    Case("a huge batch", {"spec.backfill.batchSize": 5000}, "less than or equal to 1024"),
    Case("endless attempts", {"spec.backfill.maxAttempts": 1000}, "less than or equal to 20"),
    Case("a malformed quantity", {"spec.backfill.resources": {"limits": {"memory": "1 GB"}}}, "limits.memory"),
    Case(
        "fewer at most than at least",
        {"spec.embedder": {"minReplicas": 3, "maxReplicas": 2}},
        "raise maxReplicas first",
    ),
    Case("at most no embedder", {"spec.embedder": {"minReplicas": 0, "maxReplicas": 0}}, "greater than or equal to 1"),
    Case("a negative floor", {"spec.embedder.minReplicas": -1}, "greater than or equal to 0"),
    Case("a duration as text", {"spec.embedder.scaleDownDelaySeconds": "5m"}, "scaleDownDelaySeconds"),
    Case("gpuLayers below all", {"spec.embedder.gpuLayers": -2}, "greater than or equal to -1"),
    Case("an embedder image as URL", {"spec.embedder.image": "docker://r/e:1"}, "image reference as in a pod"),
    Case(
        "a toleration of nothing",
        {"spec.embedder.tolerations": [{"operator": "Exists", "key": "gpu", "value": "true"}]},
        "remove value, or use operator Equal",
    ),
    Case("a toleration without key", {"spec.embedder.tolerations": [{"value": "true"}]}, "needs the taint's key"),
    Case(
        "an external embedder with pods",
        {**EXTERNAL, "spec.embedder.resources": {"limits": {"nvidia.com/gpu": 1}}},
        "the operator runs no embedder pod: remove image, resources",
    ),
    Case(
        "an external embedder on the GPU",
        {**EXTERNAL, "spec.embedder.gpuLayers": 12},
        "and gpuLayers, or remove external",
    ),
    Case(
        "an external embedder with a file",
        {**EXTERNAL, "spec.embedding.source": {"image": _IMAGE}},
        "remove embedding.source",
    ),
    Case("two embedders", {**EXTERNAL, "spec.embedder.ref": {"name": "shared"}}, "remove embedder.ref, or remove"),
    Case(
        "another object's embedder with resources",
        {**REFERENCE, "spec.embedder.resources": {"limits": {"nvidia.com/gpu": 1}}},
        "the operator runs no embedder pod: remove image, resources",
    ),
    Case(
        "another object's embedder with a file",
        {**REFERENCE, "spec.embedding.source": {"image": _IMAGE}},
        "remove embedding.source",
    ),
    Case(
        "another object's embedder with a key in the wrong place",
        {**REFERENCE, "spec.embedder.apiKey": {"secretName": "key"}},
        "belongs in embedder.external.apiKey or embedder.ref.apiKey",
    ),
    Case(
        "TLS for the embedder of another object",
        {**REFERENCE, "spec.embedder.tls": {"secretName": "tls"}},
        "remove embedder.tls",
    ),
    Case(
        "another object's embedder with a key in place of its Secret's name",
        {"spec.embedder": {"ref": {"name": "shared", "apiKey": {"secretName": "pa-AbCdEf_123"}}}},
        "the key itself belongs in the Secret",
    ),
    Case(
        "another object's embedder with a key with a slash",
        {"spec.embedder": {"ref": {"name": "shared", "apiKey": {"secretName": "k", "key": "a/b"}}}},
        "must be a key of the Secret",
    ),
    Case("a reference to nobody", {"spec.embedder": {"ref": {"namespace": "ai"}}}, "name: Required value"),
    Case("a reference by URL", {"spec.embedder": {"ref": {"name": "http://shared"}}}, "the name of a MemoryIndex"),
    Case(
        "a reference to all namespaces",
        {"spec.embedder": {"ref": {"name": "shared", "namespace": "*"}}},
        "the name of a namespace",
    ),
    Case(
        "an external embedder's endpoint", {"spec.embedder.external.url": "http://e:80/v1/embeddings"}, "so remove /v1"
    ),
    Case(
        "an external embedder of an unknown make",
        {"spec.embedder.external": {"url": "http://e:80", "api": "Ollama"}},
        "Unsupported value",
    ),
    Case(
        "another name of the model at our own embedder",
        {"spec.embedder.external": {"url": "http://e:80", "model": "org/m"}},
        "set embedder.external.api",
    ),
    Case(
        "an external embedder's key in its URL",
        {"spec.embedder.external.url": "http://k:s@e:80"},
        "embedder.external.apiKey",
    ),
    Case(
        "an external embedder by another protocol",
        {"spec.embedder.external.url": "grpc://e:80"},
        "begins with https:// or http://",
    ),
    Case(
        "an external embedder's authority by its file",
        {"spec.embedder.external": {"url": "https://e.ml.svc", "caSecret": {"name": "/etc/ca.crt"}}},
        "must be the name of a Secret",
    ),
    Case(
        "an external embedder's authority with a key with a slash",
        {"spec.embedder.external": {"url": "https://e.ml.svc", "caSecret": {"name": "ca", "key": "a/b"}}},
        "must be a key of the Secret",
    ),
    Case(
        "an external embedder's key with a slash",
        {"spec.embedder.external": {"url": "http://e:80", "apiKey": {"secretName": "k", "key": "a/b"}}},
        "must be a key of the Secret",
    ),
    Case(
        "a gate without a set",
        {"spec.swap.gate": {"maxRecallDrop": 0.02}},
        "set either swap.gate.pvc or swap.gate.configMap",
    ),
    Case(
        "a gate with two sets",
        {"spec.swap.gate": {"pvc": {"claimName": "a", "path": "q"}, "configMap": {"name": "b"}}},
        "exactly one place",
    ),
    Case(
        "a drop in per cent",
        {"spec.swap.gate": {"configMap": {"name": "b"}, "maxRecallDrop": 2}},
        "a fraction from 0 to 1",
    ),
    Case("a late toleration", {"spec.embedder.tolerations": [{"key": "a", "tolerationSeconds": 5}]}, "set the effect"),
    Case(
        "a ConfigMap of another namespace",
        {"spec.swap.gate": {"configMap": {"name": "dbaas/queries"}}},
        "must be the name of a ConfigMap in this namespace",
    ),
    Case(
        "a key of a ConfigMap with a blank",
        {"spec.swap.gate": {"configMap": {"name": "a", "key": "my queries"}}},
        "must be a key of the ConfigMap",
    ),
    Case(
        "a volume of another namespace",
        {"spec.swap.gate": {"pvc": {"claimName": "dbaas/queries", "path": "q"}}},
        "must be the name of a PersistentVolumeClaim in this namespace",
    ),
    Case(
        "a set out of its volume",
        {"spec.swap.gate": {"pvc": {"claimName": "queries", "path": "../q"}}},
        "relative to the volume's root",
    ),
    Case("a caller that is nobody", {"spec.embedder.allowFrom": [{}]}, "set namespaceSelector, podSelector or both"),
    Case(
        "callers by address",
        {"spec.embedder.allowFrom": [{"ipBlock": {"cidr": "0.0.0.0/0"}}]},
        'unknown field "spec.embedder.allowFrom[0].ipBlock"',
    ),
    Case(
        "a key in place of its Secret's name, for our own embedder",
        {"spec.embedder.apiKey": {"secretName": "pa-AbCdEf_123"}},
        "the key itself belongs in the Secret",
    ),
    Case(
        "a key with a slash, for our own embedder",
        {"spec.embedder.apiKey": {"secretName": "k", "key": "a/b"}},
        "must be a key of the Secret",
    ),
    Case(
        "an external embedder with the key at the wrong place",
        {"spec.embedder": {"external": {"url": "http://e:80"}, "apiKey": {"secretName": "k"}}},
        "move embedder.apiKey there",
    ),
    Case(
        "TLS for an embedder that is external",
        {"spec.embedder": {"external": {"url": "https://e.ml.svc"}, "tls": {"secretName": "tls"}}},
        "remove embedder.tls",
    ),
    Case("a certificate without a Secret", {"spec.embedder.tls": {}}, "secretName: Required value"),
    Case(
        "a certificate in place of the name of its Secret",
        {"spec.embedder.tls": {"secretName": "-----BEGIN CERTIFICATE-----"}},
        "the certificate and its key belong in the Secret",
    ),
    Case(
        "an external embedder with callers",
        {"spec.embedder": {"external": {"url": "http://e:80"}, "allowFrom": []}},
        "allowFrom, gpuMemory and gpuLayers, or remove external",
    ),
    Case("no GPU memory", {"spec.embedder.gpuMemory": 0}, "greater than or equal to 1"),
    Case("GPU memory on the CPU", {"spec.embedder": {"gpuMemory": 1500, "gpuLayers": 0}}, "remove embedder.gpuMemory"),
    Case(
        "a label of the operator's",
        {"spec.embedder.podTemplate": {"labels": {"app.kubernetes.io/instance": "other"}}},
        "the operator or Kubernetes sets one of these labels",
    ),
    Case(
        "a label with a blank",
        {"spec.embedder.podTemplate": {"labels": {"team": "my team"}}},
        "spec.embedder.podTemplate.labels.team",
    ),
    Case(
        "a variable of the operator's",
        {"spec.embedder.podTemplate": {"env": [{"name": "MEMORY_TABLE", "value": "other"}]}},
        "variables that begin with MEMORY_ are the operator's",
    ),
    Case(
        "a variable from a Secret",
        {"spec.embedder.podTemplate": {"env": [{"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "s"}}}]}},
        'unknown field "spec.embedder.podTemplate.env[0].valueFrom"',
    ),
    Case(
        "a pod field that gives rights",
        {"spec.embedder.podTemplate": {"serviceAccountName": "admin"}},
        'unknown field "spec.embedder.podTemplate.serviceAccountName"',
    ),
    Case(
        "a toleration of workers without the taint's key",
        {"spec.embedder.podTemplate": {"tolerations": [{"operator": "Equal", "value": "memory"}]}},
        "operator Equal needs the taint's key",
    ),
    Case(
        "a toleration of nothing, of workers",
        {"spec.embedder.podTemplate": {"tolerations": [{"operator": "Exists", "key": "gpu", "value": "true"}]}},
        "remove value, or use operator Equal",
    ),
    Case(
        "a late toleration of workers",
        {"spec.embedder.podTemplate": {"tolerations": [{"key": "a", "tolerationSeconds": 5}]}},
        "set the effect",
    ),
    Case("graph as text", {"spec.graph.enabled": "on"}, "spec.graph.enabled"),
    Case("an unknown scaler", {"spec.embedder.scaling": "Keda"}, 'supported values: "Operator", "External"'),
    Case(
        "an external embedder that somebody scales",
        {"spec.embedder": {"external": {"url": "http://e:80"}, "scaling": "External"}},
        "there are no pods to scale; remove embedder.scaling",
    ),
)

MALFORMED = (*IDENTITY, *DATABASE, *EMBEDDING, *SOURCE, *WORK)

FORBIDDEN_CHANGES = (
    Case("the database", {"spec.database.name": "other"}, "database.name is immutable"),
    Case("the table", {"spec.database.table": "other"}, "database.table is immutable"),
    Case("the cluster", {"spec.database.cluster.name": "other"}, "create a second MemoryIndex for the other cluster"),
    Case("the cluster's namespace", {"spec.database.cluster.namespace": "other"}, "database.cluster is immutable"),
    Case(
        "the kind of Postgres",
        {"spec.database.cluster": REMOVED, "spec.database.extension": {"management": "Observe"}},
        "so it can be neither added nor removed",
    ),
    Case(
        "dimensions alone",
        {**CUSTOM, "spec.embedding.dimensions": 768},
        "only together with embedding.model",
        before=CUSTOM,
    ),
    Case(
        "a custom model's prefix",
        {**CUSTOM, "spec.embedding.queryPrefix": "query: "},
        "pooling, maxTokens and prefixes of a model are immutable",
        before=CUSTOM,
    ),
    Case(
        "an external model's prefix",
        {**LLAMA, "spec.embedding.queryPrefix": "query: "},
        "swap to another embedding.model (embedder.external.model may name the same one)",
        before=LLAMA,
    ),
    Case(
        "a custom model's pooling",
        {**CUSTOM, "spec.embedding.pooling": "cls"},
        "delete this object with deletionPolicy Delete and create it anew",
        before=CUSTOM,
    ),
)
