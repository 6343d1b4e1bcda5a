"""Observe the TLS of embedders that the operator runs: their certificates, their authorities, and what callers see.

An object that refers to the embedder of another one needs that one's URL and authority. Both are read from the other
object and its Secret, under its owner's consent, and only the certificates of the authority are taken from there.
"""

from collections.abc import Mapping

from memory_operator.api.embedder import CaConfigMap, embedder_owner
from memory_operator.api.reasons import Reason
from memory_operator.api.spec import Manifest, MemoryIndex, parsed
from memory_operator.clients.authorities import Authorities
from memory_operator.clients.certificates import serving_certificate
from memory_operator.clients.embedder import EmbedderProbe
from memory_operator.clients.kube import Kube, KubeError
from memory_operator.controller.objects import Objects
from memory_operator.reconcile.authorization.consent import check_embedder_owner
from memory_operator.reconcile.embedder_tls import has_copy
from memory_operator.reconcile.facts import DeploymentFacts, Problem, ServingCertificate
from memory_operator.resources.embedder import embedder_url
from memory_operator.resources.embedder_ca import copied_authority
from memory_operator.resources.worker_pods import configured_embedder

AUTHORITY_KEY = "ca.crt"  # of a Secret of cert-manager whose issuer has an authority of its own


class EmbedderTlsObserver:
    """Reads what is needed to verify embedders that the operator runs."""

    def __init__(self, kube: Kube, objects: Objects, authorities: Authorities, probe: EmbedderProbe) -> None:
        self._kube = kube
        self._objects = objects
        self._authorities = authorities
        self._probe = probe

    async def resolved(self, index: MemoryIndex) -> MemoryIndex:
        """Return the object with how its embedder is called, if that is one of the operator's that speaks TLS.

        The embedder of another object is called so only if its owner consents. While the Secret cannot be read, workers
        keep the copy of the authority that they have.
        """
        ref = index.spec.embedder.ref
        owner = await self._owner(index, (ref.namespace, ref.name)) if ref else index
        if owner is None or not owner.serves_tls:
            return index
        authority = copied_authority(index, (owner.namespace, owner.name))
        found = await self._authority_of(owner)
        if isinstance(found, Problem):
            copies = (await self._objects.children(("ConfigMap",), index.namespace, index.name))["ConfigMap"]
            kept = any(has_copy(one, authority) for one in copies if one["metadata"]["name"] == authority.name)
            return index.over_tls(authority if kept else None)
        return index.over_tls(authority if found else None)

    async def copied(self, index: MemoryIndex, sync: Manifest | None) -> dict[str, str | Problem]:
        """Return the certificates of the copied authorities that the object and its sync worker name, by their keys."""
        former = configured_embedder(sync) if sync else None
        named = [(embedder_url(index), index.embedder_authority)]
        named += [(former.url, former.authority)] if former else []
        found: dict[str, str | Problem] = {}
        for url, authority in named:
            place = embedder_owner(url)
            if place is None or not isinstance(authority, CaConfigMap) or authority.key in found:
                continue
            owner = await self._owner(index, place)
            gone = Problem(Reason.EMBEDDER_NOT_SHARED, f"The embedder at {url} is not shared any more.")
            found[authority.key] = await self._authority_of(owner) if owner and owner.serves_tls else gone
        return found

    async def certificate(self, index: MemoryIndex) -> ServingCertificate | Problem | None:
        """Return the certificate that the object's own embedder serves, or what is wrong with its Secret.

        The result is None if the embedder speaks no TLS.
        """
        tls = index.spec.embedder.tls
        if tls is None or not index.serves_tls:
            return None
        secret = await self._kube.get("Secret", index.namespace, tls.secret_name)
        found = serving_certificate(secret, f"{index.namespace}/{tls.secret_name}")
        authority = await self._authority_of(index)
        unusable = isinstance(authority, Problem) and authority.reason is Reason.SECRET_INVALID
        return authority if isinstance(authority, Problem) and unusable and not isinstance(found, Problem) else found

    async def unverified(
        self, index: MemoryIndex, copies: Mapping[str, str | Problem], served: DeploymentFacts | None
    ) -> Problem | None:
        """Return why callers do not accept the certificate that the object's own embedder shows; None if they do.

        The result is also None if the embedder speaks no TLS or has no ready pod.
        """
        if not index.serves_tls or served is None or not served.ready:
            return None
        named = index.embedder_authority
        certificates = copies.get(named.key, "") if named else ""
        return None if isinstance(certificates, Problem) else await self._probe.unverified(index, certificates)

    async def _owner(self, index: MemoryIndex, place: tuple[str, str]) -> MemoryIndex | None:
        """Return the MemoryIndex at a place if its embedder may be used by this one, else None."""
        if place == (index.namespace, index.name):
            return index
        try:
            found = await self._objects.get("MemoryIndex", *place)
        except KubeError as error:
            if not error.refused:
                raise
            return None
        owner = parsed(found) if found else None
        return None if check_embedder_owner(index, place, owner) else owner

    async def _authority_of(self, owner: MemoryIndex) -> str | Problem:
        """Return the certificates that verify an embedder with TLS; an empty text if the public authorities do."""
        if owner.spec.embedder.tls is None:
            return ""
        place = (owner.namespace, owner.spec.embedder.tls.secret_name, AUTHORITY_KEY)
        found = await self._authorities.certificates(place, "serving")
        return "" if isinstance(found, Problem) and found.reason is Reason.SECRET_KEY_MISSING else found
