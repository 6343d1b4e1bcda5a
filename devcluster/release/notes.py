"""Writes the notes of a release: what is new, what was published, and how to verify it."""

from devcluster.release.artifacts import Release

_VERIFY = """## How to verify

Everything is signed with the key whose public half is `cosign.pub`, and no public log is asked:

```sh
cosign verify --key cosign.pub --insecure-ignore-tlog=true {chart}
cosign verify-attestation --key cosign.pub --insecure-ignore-tlog=true --type slsaprovenance1 {operator}
cosign verify-attestation --key cosign.pub --insecure-ignore-tlog=true --type cyclonedx {image}
```
"""


def write_notes(release: Release, news: str) -> str:
    """Return the notes of a release in Markdown; `news` is its section of the changelog."""
    rows = "\n".join(f"| `{one.reference}` | {one.platform or 'any'} | `{one.digest}` |" for one in release.artifacts)
    by_name = {one.key: one for one in release.artifacts}
    verify = _VERIFY.format(
        chart=by_name["chart"].by_digest,
        operator=by_name["memory-operator index"].by_digest,
        image=next(one.by_digest for one in release.artifacts if one.platform.startswith("linux/")),
    )
    head = (
        f"# MemoryIndex {release.version}\n\n{news}\n\n## What was published\n\nBuilt from commit `{release.commit}`.\n"
    )
    return f"{head}\n| artifact | platform | digest |\n|---|---|---|\n{rows}\n\n{verify}"
