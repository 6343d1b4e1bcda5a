"""Define every reason that a condition can have, with its remedy.

The set is closed: no other reason can reach the status, so documentation, alerts and tests can list them all. A reason
stalls if waiting does not help and a person must act. For any other reason the operator continues or retries. If
another controller may still deliver what is missing, the reason stalls only after a grace period. The database library
and the workers report a reason by its code, and `Reason.from_code` returns the reason of that code.
"""

# ruff: noqa: PIE796 -- what is written for a member is not its value, which `__new__` makes

from enum import Enum
from typing import Self


class Reason(Enum):
    """A machine-readable cause: its remedy, whether only a person can remedy it, and its CamelCase code."""

    # Progress and success
    SEEN = ("", False)
    OBSERVATION_FAILED = ("Grant or repair what is named here; it is tried again.", False)
    READY = ("", False)
    PROGRESSING = ("", False)
    SETTLED = ("", False)
    NOT_STALLED = ("", False)
    SUSPENDED = ("Set spec.suspend to false to go on.", False)
    WAITING = ("", False)
    REACHABLE = ("", False)
    INSTALLED = ("", False)
    INSTALLING = ("", False)
    MIGRATED = ("", False)
    MIGRATING = ("", False)
    AVAILABLE = ("", False)
    STARTING = ("", False)
    ROLLING_OUT = ("", False)
    SCALED_TO_ZERO = (
        "A pending row or a recall by our library starts a pod; spec.embedder.minReplicas of 1 keeps one.",
        False,
    )
    COMPLETE = ("", False)
    SYNCING = ("", False)
    BACKFILLING = ("", False)
    VALID = ("", False)
    BUILDING = ("", False)
    SWAPPING = ("", False)
    ACTIVE = ("", False)
    ENABLING = ("", False)
    RULES_MISSING = ("", False)
    FILLING = ("", False)
    FILLED = ("", False)
    DISABLING = ("", False)
    DISABLED = ("Set spec.graph.enabled to true, or drop them with `memory graph disable`.", False)
    DELETING = ("", False)

    # The specification
    INVALID_SPEC = ("Correct the named field.", True)
    UNKNOWN_MODEL = ("Set spec.embedding.model to one of the models named here.", True)
    DIMENSION_MISMATCH = (
        (
            "Make the embedder and the column agree with spec.embedding.dimensions, or change that field together with "
            "spec.embedding.model (for a custom model, together with spec.embedding.source)."
        ),
        True,
    )

    # What others have to say
    NOT_PERMITTED = ("Choose what the operator's chart permits, or add this to the chart value named here.", True)
    CONSENT_MISSING = ("Run that line, or ask whoever may change the named object to run it.", True)
    TABLE_TAKEN = (
        "Delete this MemoryIndex; if another table was meant, create a second MemoryIndex for that table.",
        True,
    )
    NAME_TAKEN = ("Delete or rename that object, or create this MemoryIndex under another name.", True)

    # The database and its credentials
    SECRET_MISSING = ("Create the Secret, or correct spec.database.credentials.", True)
    SECRET_KEY_MISSING = ("Add the key to the Secret, or correct spec.database.credentials.key.", True)
    SECRET_INVALID = ("Store a connection URI of the form postgresql://user@host:5432/database there.", True)
    DATABASE_NAME_MISMATCH = (
        (
            "Put a connection URI that leads to spec.database.name into the Secret; if another database was meant, "
            "create a second MemoryIndex for that database and delete this one."
        ),
        True,
    )
    DATABASE_IDENTITY_MISMATCH = (
        (
            "Correct the Secret; if the database has moved to another server, set spec.deletionPolicy to Retain, "
            "delete this MemoryIndex and create it again: all vectors stay."
        ),
        True,
    )
    CLUSTER_MISSING = (
        (
            "Create the CloudNativePG Cluster; if another Cluster was meant, create a second MemoryIndex for that "
            "Cluster and delete this one."
        ),
        True,
    )
    CNPG_MISSING = (
        (
            "Install CloudNativePG; for a Postgres that is known by its URI alone, create a second MemoryIndex without "
            "spec.database.cluster and delete this one."
        ),
        True,
        "CloudNativePGMissing",
    )
    REPLICA_CLUSTER = ("Promote the Cluster, or create the MemoryIndex where the primary Cluster is.", True)
    CLUSTER_HIBERNATED = ("Remove the annotation cnpg.io/hibernation=on from the Cluster.", True)
    CLUSTER_NOT_READY = ("Nothing to do: the operator goes on when the Cluster is back.", False)
    CLUSTER_NEEDS_ACTION = ("Do what CloudNativePG asks for.", True)
    CLUSTER_NOT_HEALTHY = ("Look into the Cluster's status.", True)
    DATABASE_UNREACHABLE = ("Check that host and port of the connection URI answer from the operator's pod.", False)
    DATABASE_FULL = (
        "Enlarge the database's volume, or its /dev/shm where Postgres's log names a shared memory segment.",
        True,
    )
    SERVER_NOT_VERIFIED = (
        "Correct the host of the connection URI, or name the server's authority in spec.database.tls.caSecret.",
        True,
    )
    AUTHENTICATION_FAILED = ("Put the role's current password and an existing database into the Secret.", True)
    POOLER_REFUSED = ("Point the connection URI at the -rw service instead of a transaction pooler.", True)
    PROTOCOL_VIOLATION = ("Point the connection URI at a Postgres server that you trust.", True)
    DATABASE_ERROR = ("Read the operator's log for the error class; it is retried.", False)

    # The extension
    EXTENSION_MISSING = (
        (
            "As a superuser run CREATE EXTENSION vector in the database, "
            "or set spec.database.extension.management to Database."
        ),
        True,
    )
    EXTENSION_NOT_AVAILABLE = (
        (
            "Set the Cluster's spec.imageName to an image that contains pgvector or, from Postgres 18 on, add the "
            "quoted lines to the Cluster; the operator never changes it."
        ),
        True,
    )
    EXTENSION_TOO_OLD = (
        "Provide a newer pgvector in the Postgres image, or lower spec.database.extension.minimumVersion.",
        True,
    )
    DATABASE_OBJECT_FOREIGN = ("Add the quoted lines to that Database object.", True)
    DATABASE_OBJECT_MISSING = ("Put the database's present owner into the quoted Database object and apply it.", True)
    DATABASE_OBJECT_FAILED = ("Read the Database object's status; CloudNativePG retries.", True)
    CLUSTER_RECONCILIATION_DISABLED = (
        "Remove the annotation cnpg.io/reconciliationLoop=disabled from the Cluster.",
        True,
    )

    # Workers
    INVALID_CONFIGURATION = ("Correct the setting named here in spec.", True)
    INVALID_INPUT = ("Correct what is named here.", True)
    DATABASE_REJECTED = (
        "Give the role of the connection URI the right that is named here, or mend what Postgres's log names.",
        True,
    )
    LOCK_NOT_AVAILABLE = ("Nothing to do: it is tried again when the other session has let go.", False)
    SCHEMA_UNSUPPORTED = (
        (
            "Add to the table what is named here; if another table was meant, create a second MemoryIndex for that "
            "table and delete this one."
        ),
        True,
    )
    EXISTING_VECTORS = (
        (
            "Set spec.database.existingVectors to Discard, which makes all of them anew, or to Keep if "
            "spec.embedding.model made every one of them from the present text."
        ),
        True,
    )
    SWAP_REFUSED = (
        "Set spec.embedding back to the active model, choose another one, or tolerate more in spec.swap.gate.",
        True,
    )
    SWAP_UNDECIDED = (
        (
            "Name in spec.swap.gate another ConfigMap or file with more questions, tolerate more there, or set "
            "spec.embedding back to the active model."
        ),
        True,
    )
    SWAP_IN_PROGRESS = ("See `memory swap status`; `memory swap abort` ends it.", True)
    NO_SWAP = ("Nothing to do: the swap has ended.", False)
    EMBEDDER_BUSY = ("Nothing to do: it is tried again.", False)
    EMBEDDER_UNAUTHORIZED = ("Put the embedder's API key into the named Secret.", True)
    EMBEDDER_BROKEN = ("Read the embedder's log; its answers are not vectors.", True)
    JOB_FAILED = ("Read the Job's log; it is started again with a growing delay.", False)
    SCHEMA_BEHIND = ("Nothing to do: the migration runs again.", False)
    SCHEMA_AHEAD = ("Nothing to do: the operator works on the schema of a later release.", False)
    EMBEDDER_REJECTED = ("Read the embedder's log; model and dimensions must be the ones of spec.embedding.", True)
    MODEL_MISMATCH = ("Serve the model that spec.embedding names.", True)
    QUARANTINED_ROWS = ("List them with `memory quarantine list`, retry with `memory quarantine retry`.", False)

    BACKFILL_NOT_PROGRESSING = ("Read the log of the Job's pods.", False)
    SYNC_NOT_PROGRESSING = ("Read the log of the sync Deployment's pod.", False)
    GRAPH_NOT_PROGRESSING = (
        "Read the log of the sync Deployment's pod, and look in pg_stat_activity for transactions that lock memories.",
        False,
    )

    # The embedder
    EMBEDDER_UNAVAILABLE = ("Read the log of the embedder's pods.", False)
    EXTERNAL_UNREACHABLE = (
        "Check that spec.embedder.external.url answers GET /v1/models.",
        False,
        "ExternalEmbedderUnreachable",
    )
    CERTIFICATE_INVALID = (
        "Have the certificate issued anew; pods read it without a restart.",
        True,
    )
    EMBEDDER_NOT_VERIFIED = (
        "Name the authority that signs the embedder's certificate, or correct the certificate.",
        True,
    )
    EMBEDDER_NOT_SHARED = ("Create that MemoryIndex, or correct spec.embedder.ref.", True)
    EMBEDDER_IN_USE = (
        (
            "Have those objects use another embedder, or take their namespaces out of this object's annotation "
            "memory-index.dev/allowed-namespaces."
        ),
        True,
    )
    UNSCHEDULABLE = (
        "Free or add what the scheduler misses, or change the fields of spec that say where the pod may run.",
        True,
    )
    IMAGE_PULL_FAILED = (
        "Correct the image (spec.embedder.image, or the chart's) or the credentials of its registry.",
        True,
    )
    PROGRESS_DEADLINE_EXCEEDED = ("Read the events and logs of the Deployment's pods.", True)
    CRASH_LOOP = ("Read the log of the pod's previous container.", True, "CrashLoopBackOff")
    OOM_KILLED = ("Raise the memory limit of the container that is named here.", True, "OOMKilled")
    FETCHING = ("", False)
    MODEL_NOT_FETCHED = (
        (
            "Correct spec.embedding.source.http, give its volume.size more room, or let its URL be reached from this "
            "namespace; it is tried again."
        ),
        True,
    )
    MODEL_NOT_VERIFIED = ("Correct spec.embedding.source; its file and its sha256 must agree.", True)
    POD_REJECTED = ("Change what the admission control or quota named here refuses.", True)
    POD_NOT_READY_TO_START = (
        "Create the ConfigMap, Secret or volume claim that the pod's events name, or correct its name in spec.",
        True,
    )
    POD_NOT_ENDING = (
        "Bring back the pod's node, delete the Node object of a lost one, or keep an added container out of the pods.",
        True,
    )
    GPU_NOT_USED = (
        "Give the pods a GPU and the CUDA image, or set spec.embedder.gpuLayers to 0 to run on the CPU on purpose.",
        True,
    )

    # Writes
    WRITE_REFUSED = ("Grant the operator the permission, or change what admission control or quota refuses.", True)

    CHANGED_BY_ADMISSION = (
        "Nothing to do while the pods serve; else exempt the object from the policy that changes the named field.",
        False,
    )
    CHANGED_BY_OTHERS = (
        "Find with `kubectl get -o yaml --show-managed-fields` who writes that field, and have it leave the object.",
        True,
    )

    def __new__(cls, *_: object) -> Self:
        """Give each reason a value of its own, because members with equal values would be one."""
        made = object.__new__(cls)
        made._value_ = len(cls.__members__)
        return made

    def __init__(self, remedy: str, stalls: bool, code: str = "") -> None:
        """Store what is written for the reason; its code is its name in CamelCase unless another one is given."""
        self.remedy = remedy
        self.stalls = stalls
        self.code = code or "".join(word.capitalize() for word in self.name.split("_"))

    @classmethod
    def from_code(cls, code: str, default: "Reason") -> "Reason":
        """Return the reason with this code; if no reason has the code, return `default`."""
        return _BY_CODE.get(code, default)


_BY_CODE = {reason.code: reason for reason in Reason}

# What External Secrets, CloudNativePG, a cluster autoscaler, a volume that grows by itself, a registry, a server of
# model files, a storage driver or an installation under way may still deliver.
DELIVERED_BY_OTHERS = frozenset(
    {
        Reason.SECRET_MISSING,
        Reason.SECRET_KEY_MISSING,
        Reason.AUTHENTICATION_FAILED,
        Reason.DATABASE_FULL,
        Reason.SERVER_NOT_VERIFIED,
        Reason.CLUSTER_MISSING,
        Reason.CLUSTER_NOT_HEALTHY,
        Reason.CNPG_MISSING,
        Reason.CERTIFICATE_INVALID,
        Reason.EMBEDDER_NOT_VERIFIED,
        Reason.EMBEDDER_NOT_SHARED,
        Reason.DATABASE_OBJECT_FAILED,
        Reason.UNSCHEDULABLE,
        Reason.IMAGE_PULL_FAILED,
        Reason.POD_NOT_READY_TO_START,
        Reason.POD_NOT_ENDING,
        Reason.MODEL_NOT_FETCHED,
    }
)
