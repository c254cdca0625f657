"""A stand-in for redis-server: empties the server at host:port, its first argument, and passes on to it what comes by --unixsocket."""

import asyncio
import contextlib
import sys

host, port = sys.argv[1].rsplit(":", 1)


async def pass_on(reader, writer):
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()


async def serve(reader, writer):
    to_client, to_server = await asyncio.open_connection(host, int(port))
    await asyncio.gather(pass_on(reader, to_server), pass_on(to_client, writer))


async def main():
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"FLUSHALL\r\n")
    if (reply := await reader.readline()) != b"+OK\r\n":
        sys.exit(reply)
    writer.close()
    server = await asyncio.start_unix_server(serve, sys.argv[sys.argv.index("--unixsocket") + 1])
    print("Ready to accept connections", flush=True)
    await server.serve_forever()


asyncio.run(main())
