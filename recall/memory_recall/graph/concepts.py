"""Finds the concepts of a memory without a language model: from its tags, its keywords and patterns in its content.

Two texts with the same normal form name the same concept. The normal form is in lower case, without punctuation at its
ends and without the possessive, and its last word is in the singular. Which concepts are too rare or too common to
join memories depends on all memories of a scope, so it is decided where the graph is built.
"""

import re
from itertools import dropwhile
from typing import Literal

Source = Literal["names", "words"]

_SHORTEST = 2
_SHORTEST_WORD = 3
_EDGES = " .,;:!?()[]{}<>\"'`*_~"
_PATTERNS = (
    re.compile(r"https?://[^\s<>\"')\]]+"),
    re.compile(r"(?<![\w@])@\w[\w.-]*"),
    re.compile(r"`([^`\n]{2,60})`"),
    re.compile(r"(?<![\w/])~?(?:/[\w.-]+)+"),
    re.compile(r"(?<![\w/])\w+(?:[-_./:]\w+)+\b"),
    re.compile(r"\b(?=\w*\d)(?=\w*[A-Za-z])\w+\b"),
)
_CAPITALISED = re.compile(r"\b[A-Z][\w'\u2019-]*(?:[ \t]+[A-Z][\w'\u2019-]*)*")
_WORD = re.compile(r"[^\W\d_][\w+#'\u2019-]*")
_TECHNOLOGY_NAMES = """
android ansible apache arduino argocd asyncio authentik aws azure bash bluetooth borg btrfs caddy celery ceph cilium
cloudflare cloudnativepg cron cuda debian django dns docker dovecot elasticsearch etcd ext4 fastapi fedora ffmpeg
firefox flask flux forgejo frigate git gitea github gitlab go golang gpu grafana graphql grpc haproxy helm
homeassistant html http immich influxdb ios iptables istio java javascript jellyfin jenkins json k3s k8s kafka
keycloak kotlin kubernetes kvm ldap linux llama llvm loki longhorn lua lxc mariadb markdown matplotlib matter
memcached minio mongodb mqtt mysql nas nats nextcloud nfs nginx nixos node nodejs numpy nvidia oauth ollama opensearch
openssl openvpn openwrt oracle pandas pgbouncer pgvector php pihole pip plex podman postfix postgres postgresql
prometheus proxmox pydantic python pytorch qemu rabbitmq raid react redis restic rsync ruby rust s3 samba saml selinux
sentry smtp snmp spark sqlite ssh svelte swift syncthing systemd tailscale tensorflow terraform thanos tls traefik
truenas typescript ubuntu udp unbound usb valkey vault vim vlan vpn vue wayland webassembly webhook wifi windows
wireguard x11 xfs yaml zfs zigbee zsh zwave
"""
_TECHNOLOGIES = frozenset(_TECHNOLOGY_NAMES.split())
_ENGLISH = """
a about above after again against all also am an and any are as at be became because been before being below between
both but by can could did do does doing down during each either else ever every few for from further get got had has
have having he her here hers herself him himself his how i if in into is it its itself just like made make many may me
might more most much must my myself neither no nor not now of off on once one only or other our ours out over own per
same shall she should since so some still such than that the their theirs them themselves then there these they this
those though through to too two under until up upon us very was we well were what when where which while who whom
whose why will with within without would yes yet you your yours yourself
"""
_STOP_WORDS = frozenset(_ENGLISH.split())


def concepts_of(content: str, tags: str = "", keywords: str = "", *, source: Source = "words") -> frozenset[str]:
    """Return the normal forms of a memory's concepts.

    `tags` are separated by commas, `keywords` by spaces. With the source "names", the content contributes patterns,
    technologies and runs of capitalised words; with "words", also every other word of at least three letters.
    """
    named = {one for tag in tags.split(",") for one in _parts(tag)} | set(keywords.split())
    found = named | _in_content(content)
    if source == "words":
        found |= {word for word in _WORD.findall(content) if len(word) >= _SHORTEST_WORD}
    normal = {normal_form(one) for one in found}
    return frozenset(one for one in normal if len(one) >= _SHORTEST and one not in _STOP_WORDS)


def normal_form(text: str) -> str:
    """Return the text in lower case with single spaces, no punctuation at its ends, and its last word in the singular.

    The singular is that of regular English nouns; a word of fewer than four letters stays as it is.
    """
    words = " ".join(text.lower().replace("\u2019", "'").split())
    joined = words.strip(_EDGES).removesuffix("'s").strip(_EDGES)
    start, space, last = joined.rpartition(" ")
    return start + space + _singular(last)


def _singular(word: str) -> str:
    if len(word) < 4 or not word.isalpha() or word.endswith(("ss", "us", "is")):
        return word
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith(("ches", "shes", "sses", "xes", "zes")):
        return word[:-2]
    return word.removesuffix("s")


def _parts(tag: str) -> tuple[str, ...]:
    stripped = tag.strip()
    return (stripped,) if stripped else ()


def _in_content(content: str) -> set[str]:
    found = {match.group(match.lastindex or 0) for pattern in _PATTERNS for match in pattern.finditer(content)}
    found |= {word for word in _WORD.findall(content) if word.lower() in _TECHNOLOGIES}
    for match in _CAPITALISED.finditer(content):
        words = list(dropwhile(lambda word: word.lower() in _STOP_WORDS, match.group().split()))
        found.update(words)
        if len(words) > 1:
            found.add(" ".join(words))
    return found
