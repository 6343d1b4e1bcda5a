"""Starts the process that recalls without pause in the toolbox pod of a tenant."""

import asyncio
from asyncio.subprocess import PIPE, Process

from devcluster.demo.objects import TOOLBOX
from tests.support.cluster.tenants import Tenant
from tests.support.recalling.loop import SCRIPT


async def spawn_recalls(tenant: Tenant, **settings: str) -> Process:
    """Start the process; `settings` are environment variables of it beside those of the pod."""
    environment = ("env", *(f"{name}={value}" for name, value in settings.items()))
    command = ("exec", "-i", TOOLBOX, "--", *environment, "python", "-c", SCRIPT.read_text(encoding="utf-8"))
    return await asyncio.create_subprocess_exec(
        *tenant.cluster.kubectl_command("-n", tenant.name, *command), stdin=PIPE, stdout=PIPE, stderr=PIPE
    )
