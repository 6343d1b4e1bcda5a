"""What each condition and each reason means, in one sentence; the remedies are in `memory_operator.api.reasons`."""

from memory_operator.api.conditions import ConditionType
from memory_operator.api.reasons import Reason

CONDITIONS: dict[ConditionType, str] = {
    ConditionType.READY: "A recall by meaning works and a new row gets its vector: all conditions of the work hold.",
    ConditionType.RECONCILING: "The operator works, or waits for something that comes by itself.",
    ConditionType.STALLED: "The object does not proceed until a person acts.",
    ConditionType.DATABASE_REACHABLE: (
        "Secret, Cluster and connection are there, and lead to `spec.database.name` on the server that is meant."
    ),
    ConditionType.EXTENSION_READY: "`pg_extension` has pgvector, not older than `minimumVersion`.",
    ConditionType.SCHEMA_READY: (
        "The database is at this operator's revision, its rules are as they must be, and the table is this object's."
    ),
    ConditionType.EMBEDDER_READY: (
        "No roll-out is under way, a pod is ready, and it serves the file that the vectors were made with; or the "
        "external embedder can be used."
    ),
    ConditionType.BACKFILLED: (
        "The sync worker has reached the database and an embedder of the active model, waits for neither of them, and "
        "no row is pending or so few that it embeds them."
    ),
    ConditionType.INDEX_READY: ("Postgres reports the HNSW index as valid, and it has the parameters of `spec.index`."),
    ConditionType.MODEL_ACTIVE: "The model of `spec.embedding` is the active one, and nothing of a swap is left to do.",
    ConditionType.GRAPH_READY: (
        "Recalls use the concept graph. The condition is there only with `graph.enabled` or while the database holds a "
        "graph, and `Ready` does without it unless a person must act."
    ),
}

REASONS: dict[Reason, str] = {
    Reason.SEEN: "The operator has seen the object and observed nothing yet.",
    Reason.OBSERVATION_FAILED: "Observing or writing failed three times or for 30 seconds, so the state is unknown.",
    Reason.READY: "Every condition of the work holds.",
    Reason.PROGRESSING: "The operator works on the condition that the message names.",
    Reason.SETTLED: "Nothing is being done.",
    Reason.NOT_STALLED: "Nobody must act.",
    Reason.SUSPENDED: "`spec.suspend` is true: nothing is changed, and the status is still reported.",
    Reason.WAITING: "The work has not begun, because an earlier condition does not hold yet.",
    Reason.REACHABLE: "The database answers, and is the one that is meant.",
    Reason.INSTALLED: "pgvector is in the database.",
    Reason.INSTALLING: "CloudNativePG has been asked for pgvector, and has not reported it yet.",
    Reason.MIGRATED: "The schema is at this operator's revision.",
    Reason.MIGRATING: "The Job that migrates the schema runs.",
    Reason.AVAILABLE: "The embedder serves.",
    Reason.STARTING: "A Deployment has no ready pod yet, or a sync worker waits that had been ready.",
    Reason.ROLLING_OUT: "A Deployment replaces its pods.",
    Reason.SCALED_TO_ZERO: "Nothing is queued, and `minReplicas: 0` let the embedder's last pod go.",
    Reason.COMPLETE: "Every row that may have a vector has one.",
    Reason.SYNCING: "The sync worker embeds the rows that were added or changed lately.",
    Reason.BACKFILLING: "A backfill embeds the pending rows.",
    Reason.VALID: "The HNSW index is valid and has the wanted parameters.",
    Reason.BUILDING: "The Job that builds the HNSW index runs.",
    Reason.SWAPPING: "Another model is being prepared to replace the active one.",
    Reason.ACTIVE: "Recalls use the model of the specification.",
    Reason.ENABLING: "The Job that makes the concept graph's tables and rules runs.",
    Reason.RULES_MISSING: "A rule of the concept graph is missing or altered, so no recall uses it; a Job restores it.",
    Reason.FILLING: "The sync worker links all memories to their concepts for the first time.",
    Reason.FILLED: "The concept graph was filled, and is kept up.",
    Reason.DISABLING: "The Job that drops the concept graph, or ends its use and keeps its tables, runs.",
    Reason.DISABLED: "`graph.enabled` is false, and with `deletionPolicy: Retain` the graph's tables stayed.",
    Reason.DELETING: "What the object brought is being undone.",
    Reason.INVALID_SPEC: "A field has a value with which nothing can be done.",
    Reason.UNKNOWN_MODEL: "No profile has this name.",
    Reason.DIMENSION_MISMATCH: "Model, column and specification do not agree on the number of dimensions.",
    Reason.NOT_PERMITTED: "The object uses an image, class, label, variable or host that the chart does not list.",
    Reason.CONSENT_MISSING: "A Cluster or a Secret does not say that this object may use it.",
    Reason.TABLE_TAKEN: (
        "The table belongs to another MemoryIndex. If that one may be gone for good, in a former Kubernetes cluster "
        "say, the message shows the statement that ends its claim and keeps the vectors."
    ),
    Reason.NAME_TAKEN: "An object that is not ours has a name that we need.",
    Reason.SECRET_MISSING: "The Secret with the connection URI, or with a key, does not exist.",
    Reason.SECRET_KEY_MISSING: "The Secret exists and lacks the key that is named.",
    Reason.SECRET_INVALID: "The value is not a connection URI with user, host and database.",
    Reason.DATABASE_NAME_MISMATCH: "The connection URI leads to another database than `spec.database.name`.",
    Reason.DATABASE_IDENTITY_MISMATCH: "The connection leads to another server than the one that is meant.",
    Reason.CLUSTER_MISSING: "The CloudNativePG Cluster does not exist.",
    Reason.CNPG_MISSING: "CloudNativePG's resource definitions are not installed.",
    Reason.REPLICA_CLUSTER: "The Cluster follows another one and can be read only.",
    Reason.CLUSTER_HIBERNATED: "The Cluster has been put to sleep.",
    Reason.CLUSTER_NOT_READY: "The Cluster starts, fails over or is being changed, and serves no connection now.",
    Reason.CLUSTER_NEEDS_ACTION: (
        "The database does not answer, and CloudNativePG reports a state of the Cluster that only a person ends, such "
        "as a full disk; the message has its words."
    ),
    Reason.CLUSTER_NOT_HEALTHY: (
        "The database does not answer, and CloudNativePG reports a fault, or a state that this operator does not know; "
        "the message has its words."
    ),
    Reason.DATABASE_UNREACHABLE: "Nothing answers at the address of the connection URI.",
    Reason.DATABASE_FULL: "Postgres has no room on its disk; a worker waits for it, 30 minutes at most, or has ended.",
    Reason.SERVER_NOT_VERIFIED: "The certificate of the database server is not the host's, or no trusted authority's.",
    Reason.AUTHENTICATION_FAILED: "Postgres refuses the role, its password or certificate, or the database.",
    Reason.POOLER_REFUSED: "A connection pooler answers, and the work needs a session of its own.",
    Reason.PROTOCOL_VIOLATION: "The server sends more than may be received, or not what Postgres's protocol demands.",
    Reason.DATABASE_ERROR: "Postgres failed in a way that has no reason of its own.",
    Reason.EXTENSION_MISSING: "pgvector has not been created in the database, and nobody has been asked to.",
    Reason.EXTENSION_NOT_AVAILABLE: "The image that Postgres runs from contains no pgvector.",
    Reason.EXTENSION_TOO_OLD: "The image holds an older pgvector than `minimumVersion`.",
    Reason.DATABASE_OBJECT_FOREIGN: "The `Database` object of this database is somebody else's.",
    Reason.DATABASE_OBJECT_MISSING: "This database has no `Database` object, and its owner is not known to us.",
    Reason.DATABASE_OBJECT_FAILED: "CloudNativePG reports that it could not apply the `Database` object.",
    Reason.CLUSTER_RECONCILIATION_DISABLED: "CloudNativePG has been told to leave the Cluster alone.",
    Reason.INVALID_CONFIGURATION: "A worker was given a setting that it cannot use.",
    Reason.INVALID_INPUT: "A worker was given an argument or a file that it cannot use.",
    Reason.DATABASE_REJECTED: "Postgres refused a statement, mostly for want of a right, and waiting does not help.",
    Reason.LOCK_NOT_AVAILABLE: "Another session holds the table for longer than a worker may wait.",
    Reason.SCHEMA_UNSUPPORTED: "The table lacks something that no migration can add, or is of a kind without support.",
    Reason.EXISTING_VECTORS: (
        "The column holds vectors that may be of another model or of another text: they were there before the first "
        "migration, the table was exchanged or restored alone, or the trigger for updates was missing or disabled."
    ),
    Reason.SWAP_REFUSED: "The next model did not pass the gate; the message has the numbers.",
    Reason.SWAP_UNDECIDED: (
        "The labelled questions are too few to tell whether the next model is worse than tolerated; the message says "
        "how many are missing."
    ),
    Reason.SWAP_IN_PROGRESS: "A swap is under way that this work would disturb.",
    Reason.NO_SWAP: "A worker was to go on with a swap, and there is none.",
    Reason.EMBEDDER_BUSY: "The embedder's queue is full.",
    Reason.EMBEDDER_UNAUTHORIZED: "The API key of the embedder is refused or lost; rows wait.",
    Reason.EMBEDDER_BROKEN: "The embedder's answers cannot be read as vectors.",
    Reason.JOB_FAILED: "A Job ended without saying why.",
    Reason.SCHEMA_BEHIND: "A worker needs a revision that has not been applied yet.",
    Reason.SCHEMA_AHEAD: "The database has a revision of a later release, as after the operator was rolled back.",
    Reason.EMBEDDER_REJECTED: "The embedder refuses texts that the model should take.",
    Reason.MODEL_MISMATCH: "The embedder serves, or the specification names, another file than the vectors' one.",
    Reason.QUARANTINED_ROWS: "Every row has a vector but those that were given up: refused, or failed repeatedly.",
    Reason.BACKFILL_NOT_PROGRESSING: "A backfill runs, and has embedded none of the pending rows for two minutes.",
    Reason.SYNC_NOT_PROGRESSING: (
        "The sync worker runs, and embeds none of the pending rows, or waits for the database or for an embedder "
        "of the active model."
    ),
    Reason.GRAPH_NOT_PROGRESSING: "The sync worker runs, and links none of the changed memories to their concepts.",
    Reason.EMBEDDER_UNAVAILABLE: "The embedder's Deployment is missing, serves another model, or does not answer.",
    Reason.EXTERNAL_UNREACHABLE: "The external embedder does not answer, or not as an embedder does.",
    Reason.CERTIFICATE_INVALID: (
        "The certificate in the Secret of the embedder, or of the database's role, has expired, is not valid yet, is "
        "for another host, or does not belong to its key."
    ),
    Reason.EMBEDDER_NOT_VERIFIED: "The embedder shows a certificate that its callers do not accept.",
    Reason.UNSCHEDULABLE: "The scheduler finds no node for a pod; the message says for want of what.",
    Reason.IMAGE_PULL_FAILED: "A node cannot pull a pod's image.",
    Reason.PROGRESS_DEADLINE_EXCEEDED: "A roll-out has not come to its end within the Deployment's deadline.",
    Reason.CRASH_LOOP: "A container ends again and again.",
    Reason.OOM_KILLED: "A container needed more memory than its limit allows, and has not become ready since.",
    Reason.FETCHING: "The Job that fetches the model's file runs.",
    Reason.MODEL_NOT_FETCHED: "The model's file cannot be fetched into its volume.",
    Reason.MODEL_NOT_VERIFIED: "The model's file has another digest than the specification names.",
    Reason.POD_REJECTED: "Kubernetes refuses to create or to start a pod, or a Job has had no pod for a minute.",
    Reason.POD_NOT_READY_TO_START: "A pod has had a node for a minute, and its volumes or its network are not ready.",
    Reason.POD_NOT_ENDING: "A pod of a Job should have ended a minute ago, and a node or another container keeps it.",
    Reason.EMBEDDER_NOT_SHARED: "The MemoryIndex whose embedder is to be used does not exist, or cannot be read.",
    Reason.EMBEDDER_IN_USE: "Others use the embedder, whose model is to be exchanged or which is to be deleted.",
    Reason.GPU_NOT_USED: "The GPU was asked for, and the pod computes on the CPU.",
    Reason.WRITE_REFUSED: "The API server refuses a write of ours.",
    Reason.CHANGED_BY_ADMISSION: (
        "The condition holds, and admission has changed a field that we set; the message names object and field."
    ),
    Reason.CHANGED_BY_OTHERS: "Something changes an object of ours back each time, so we write it ever more rarely.",
}
