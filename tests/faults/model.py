"""A model server in a process of its own: it answers "say N of WORDS words" word by word, at its own pace.

Run: `python -m tests.faults.model PORT SECONDS_A_WORD`.
"""

import contextlib
import json
import re
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def words_of(question: str) -> list[str]:
    """The whole answer to a question, as the deltas that the model says."""
    name, count = re.fullmatch(r"say (\S+) in (\d+) words", question).groups()  # type: ignore[union-attr]
    return [f"{name}.{n} " for n in range(int(count))]


class Answer(BaseHTTPRequestHandler):
    pause = 0.02

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if not body:
            return  # whoever asked was killed
        asked = json.loads(body)
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        with contextlib.suppress(ConnectionError):  # the server under test was killed, or the run stopped
            for word in words_of(asked["messages"][-1]["content"]):
                self._say({"choices": [{"index": 0, "delta": {"content": word}}]})
                time.sleep(self.pause)
            self._say({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
            self.wfile.write(b"data: [DONE]\n\n")

    def _say(self, event: object) -> None:
        self.wfile.write(b"data: %s\n\n" % json.dumps(event).encode())
        self.wfile.flush()

    def log_message(self, *arguments: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 512


if __name__ == "__main__":
    Answer.pause = float(sys.argv[2])
    Server(("127.0.0.1", int(sys.argv[1])), Answer).serve_forever()
