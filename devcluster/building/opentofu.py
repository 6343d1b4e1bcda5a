"""Builds OpenTofu and two providers, with which tests apply the modules in `terraform/`.

Only `make e2e-local` builds them, because this takes minutes. None of them is shipped. OpenTofu and both providers are
under the MPL-2.0; External Secrets is under the Apache License 2.0. The helm provider is the latest release that is
available as a Go module.
"""

from dataclasses import dataclass
from pathlib import Path

from devcluster.building.binaries import Binaries, Tool, go_architecture
from devcluster.building.versions import tool_module, tool_version
from devcluster.progress import Reporter
from devcluster.settings import Settings

REGISTRY = "registry.opentofu.org"
# Addresses of the providers, by the tool that builds each.
_PROVIDERS = {"terraform-provider-helm": "hashicorp/helm", "terraform-provider-kubectl": "gavinbunney/kubectl"}
_DEFINITION = "externalsecrets.yaml"


def opentofu_tools() -> tuple[Tool, ...]:
    """List OpenTofu, its providers, and External Secrets, of which only the definition of ExternalSecret is kept."""
    module = tool_module("opentofu")
    released = {f"{module}/version.dev": "no"}  # otherwise it calls itself a version under development
    return (
        Tool("opentofu", {"tofu": f"{module}/cmd/tofu"}, released, toolchain="go1.27.3"),
        *(Tool(name, {f"{name}_{tool_version(name)}": tool_module(name)}) for name in _PROVIDERS),
        Tool("external-secrets", {}, files={_DEFINITION: f"config/crds/bases/external-secrets.io_{_DEFINITION}"}),
    )


@dataclass(frozen=True)
class OpenTofu:
    """The built OpenTofu and its providers.

    `definition` is the manifest of the custom resource definition ExternalSecret. `providers` maps the address of each
    provider, with its version, to the directory that holds its program.
    """

    program: Path
    providers: dict[tuple[str, str], Path]
    definition: Path

    def write_mirror(self, directory: Path) -> Path:
        """Write the providers as a filesystem mirror; return the path of a CLI configuration that uses only it.

        OpenTofu with this configuration in TF_CLI_CONFIG_FILE asks no registry and does not report its use.
        """
        for (address, version), built in self.providers.items():
            place = directory / "mirror" / REGISTRY / address / version
            place.mkdir(parents=True)
            (place / f"linux_{go_architecture()}").symlink_to(built, target_is_directory=True)
        configuration = directory / "tofu.rc"
        mirror = f'filesystem_mirror {{\n    path = "{directory / "mirror"}"\n  }}'
        configuration.write_text(
            f"disable_checkpoint = true\nprovider_installation {{\n  {mirror}\n}}\n", encoding="utf-8"
        )
        return configuration


def ensure_opentofu(settings: Settings, reporter: Reporter) -> OpenTofu:
    """Build OpenTofu and its providers unless they are built."""
    binaries = Binaries(settings, opentofu_tools())
    binaries.ensure(reporter)
    return OpenTofu(
        program=binaries.path("tofu"),
        providers={
            (address, tool_version(name).removeprefix("v")): binaries.directory(name)
            for name, address in _PROVIDERS.items()
        },
        definition=binaries.directory("external-secrets") / _DEFINITION,
    )
