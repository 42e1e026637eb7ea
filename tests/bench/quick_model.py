"""A model that takes no time: its whole answer at once, as OpenAI's API streams it.

Run: `python -m tests.bench.quick_model PORT`.
"""

import asyncio
import json
import sys

from tests.bench.document import prose

DELTAS = 20


def answer() -> bytes:
    """An answer of 900 characters in its deltas, as one chunk of a chunked body."""
    text = prose(900)
    size = len(text) // DELTAS
    words = [{"index": 0, "delta": {"content": text[at : at + size]}} for at in range(0, len(text), size)]
    choices = [*words, {"index": 0, "delta": {}, "finish_reason": "stop"}]
    body = b"".join(b"data: %s\n\n" % json.dumps({"choices": [choice]}).encode() for choice in choices)
    body += b"data: [DONE]\n\n"
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    return head + b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)


ANSWER = answer()


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer until the client goes."""
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            lines = head.lower().split(b"\r\n")
            length = int(next(line for line in lines if line.startswith(b"content-length:")).split()[1])
            await reader.readexactly(length)
            writer.write(ANSWER)
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


async def main(port: int) -> None:
    server = await asyncio.start_server(serve, "127.0.0.1", port, backlog=1024)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
