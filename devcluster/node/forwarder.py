"""Forwards connections from a loopback port of the host to the cluster's API server.

The listening socket is created in the host's network namespace and inherited by this process. It stays in that
namespace, because a socket belongs to the namespace in which it was created. The host therefore reaches the API
server's port and nothing else of the cluster, and the cluster reaches nothing of the host.
"""

import asyncio
import socket
import sys

_CHUNK = 1 << 16


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(_CHUNK):
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
    except OSError:
        writer.close()


async def _serve(descriptor: int, host: str, port: int) -> None:
    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection(host, port)
        except OSError:
            writer.close()
            return
        try:
            await asyncio.gather(_pipe(reader, far_writer), _pipe(far_reader, writer))
        finally:
            far_writer.close()
            writer.close()

    server = await asyncio.start_server(connected, sock=socket.socket(fileno=descriptor))
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
