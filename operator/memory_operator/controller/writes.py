"""Remember what the API server made of the operator's writes, and how often each was repeated.

Two things would otherwise make the operator write for ever. The first is admission: a policy or a webhook changes what
the operator sends, so the stored object never equals the desired one. Therefore the object that the API server returns
for a write is compared with what was sent, and the differences are kept by the object's uid. After a restart nothing is
kept. Then the same write is sent once as a dry run before anything is decided, but only for an object that differs
although it carries the fingerprint of what is desired. The alternatives are worse: a record in an annotation needs a
second write after each write, which admission may change in turn, and a record in the status would be believed from
whoever may write the status.

The second is another writer, such as a controller that changes the object back. No record can tell it from a person's
edit, which has to be undone. Therefore the same content may be written to an object again at once, but then only after
a delay that doubles. Each content has its own delay, so two contents that alternate are slowed down as well.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from memory_operator.api.reasons import Reason
from memory_operator.api.spec import FINALIZER, Manifest, MemoryIndex
from memory_operator.clients.kube import KubeError
from memory_operator.reconcile.delays import doubled
from memory_operator.reconcile.facts import JobState, Observed
from memory_operator.reconcile.plan import MOST_FIELDS
from memory_operator.resources.common import LABEL_COMPONENT, fingerprint
from memory_operator.resources.drift import Admission, differences, is_doubtful, name_of, still_changed

FIRST_DELAY_SECONDS = 5
LONGEST_DELAY_SECONDS = 300
FORGOTTEN_AFTER = timedelta(hours=1)
Child = tuple[str, str]  # kind and name


class WrittenBackError(KubeError):
    """A write is held back, because something has undone the same write several times."""

    reason = Reason.CHANGED_BY_OTHERS

    @property
    def text(self) -> str:
        """The message for the condition whose write is held back; it does not depend on the time."""
        return self.message


@dataclass
class _Repeat:
    """How often one content was written, and when for the last time."""

    last: datetime
    times: int = 0

    def wait(self, now: datetime) -> timedelta:
        """Return how long the content must not be written again; not positive if it may be."""
        if self.times <= 1:
            return timedelta(0)
        delay = doubled(FIRST_DELAY_SECONDS, LONGEST_DELAY_SECONDS, self.times - 2)
        return self.last + timedelta(seconds=delay) - now

    def record(self, now: datetime) -> None:
        """Count a write. After a pause of twice the longest delay the count begins anew."""
        rested = now - self.last > timedelta(seconds=2 * LONGEST_DELAY_SECONDS)
        self.times, self.last = (1 if rested else self.times + 1), now


@dataclass
class Writes:
    """What was written for one MemoryIndex; kept in the memory of the process."""

    _admissions: dict[Child, Admission] = field(default_factory=dict)
    _repeats: dict[tuple[str, str, str], _Repeat] = field(default_factory=dict)
    _live: Mapping[Child, Manifest] = field(default_factory=dict)

    def require_rest(self, manifest: Manifest, now: datetime) -> None:
        """Check that the object may be written with this content now.

        Raises:
            WrittenBackError: the content was written several times lately, and something has undone each write.
        """
        found = self._repeats.get(_key(manifest))
        if found is None or found.wait(now) <= timedelta(0):
            return
        kind, meta = manifest["kind"], manifest["metadata"]
        where = f"{kind} {meta['namespace']}/{meta['name']}"
        live = self._live.get((kind, meta["name"]))
        fields = sorted(name_of(path) for path in differences(manifest, live)) if live else []
        what = (
            f"changes {', '.join(fields[:MOST_FIELDS])} of {where} back" if fields else f"undoes the writes of {where}"
        )
        message = f"Something {what}; it is written again with a growing delay of at most {LONGEST_DELAY_SECONDS} s."
        raise WrittenBackError(f"applying {where}", 409, message, refused=True)

    def record(self, sent: Manifest, stored: Manifest, now: datetime) -> None:
        """Remember a write: how the stored object differs from what was sent, and that it was written."""
        self.learn(sent, stored)
        self.count(sent, now)

    def count(self, sent: Manifest, now: datetime) -> None:
        """Remember that this content was written, and forget what was not written for an hour."""
        kept = {key: one for key, one in self._repeats.items() if now - one.last < FORGOTTEN_AFTER}
        self._repeats = kept
        self._repeats.setdefault(_key(sent), _Repeat(now)).record(now)

    def learn(self, sent: Manifest, stored: Manifest) -> None:
        """Remember how the object differs that the API server stores, or would store, for what was sent.

        What was sent may be what the API server has made of it before, as when only the number of pods changes. That is
        not changed again, and what is known of it stays.
        """
        meta = sent["metadata"]
        component = (meta.get("labels") or {}).get(LABEL_COMPONENT, "")
        key, uid = (sent["kind"], meta["name"]), stored["metadata"].get("uid", "")
        former = self._admissions.get(key)
        kept = still_changed(sent, former.changes) if former and former.uid == uid else {}
        self._admissions[key] = Admission(uid, component, {**kept, **differences(sent, stored)})

    def known(self, observed: Observed) -> Observed:
        """Return the observation with what is known of the objects that exist and of the Jobs that have not succeeded.

        What is known of other objects is forgotten.
        """
        self._live = observed.children
        uids = {key: item["metadata"].get("uid") for key, item in observed.children.items()}
        uids |= {("Database", item.name): item.uid for item in observed.database_objects}
        uids |= {("Job", job.name): job.uid for job in observed.jobs if job.state is not JobState.COMPLETE}
        self._admissions = {key: one for key, one in self._admissions.items() if one.uid == uids.get(key)}
        return replace(observed, admissions=dict(self._admissions))

    def forget_live(self) -> None:
        """Free the objects that were observed last, which take many times the memory of all that is kept here."""
        self._live = {}

    def doubtful(self, observed: Observed, wanted: Iterable[Manifest]) -> list[Manifest]:
        """Return those of the wanted objects of which only the API server can tell whether they have to be applied."""
        keyed = [((one["kind"], one["metadata"]["name"]), one) for one in wanted]
        return [
            one for key, one in keyed if key not in self._admissions and is_doubtful(one, observed.children.get(key))
        ]


def finalizer_of(index: MemoryIndex) -> Manifest:
    """Return the content of the write that adds our finalizer to a MemoryIndex."""
    return {
        "kind": "MemoryIndex",
        "metadata": {"namespace": index.namespace, "name": index.name, "finalizers": [FINALIZER]},
    }


def _key(manifest: Manifest) -> tuple[str, str, str]:
    return manifest["kind"], manifest["metadata"]["name"], fingerprint(manifest)
