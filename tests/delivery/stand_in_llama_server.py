"""A replacement for llama-server in tests: the same routes and options over our engine, one text at a time.

The real program takes ten minutes to compile, which is too long for a test.
"""

import argparse
import base64
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from memory_embedder.engine.llama import LlamaEngine
from memory_embedder.engine.protocol import EngineOptions
from memory_embedder.models.profiles import PROFILES

parser = argparse.ArgumentParser()
parser.add_argument("--model", type=Path)
parser.add_argument("--port", type=int)
options, _ = parser.parse_known_args()
engine = LlamaEngine(EngineOptions(options.model, PROFILES["all-MiniLM-L6-v2"], batch_tokens=256, contexts=1))
computer = engine.computer(1)
turn = threading.Lock()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.answer({"status": "ok"})

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        with turn:
            rows = [computer.embed([engine.encode(text).tokens])[0] for text in request["input"]]
        data = [
            {"index": i, "embedding": base64.b64encode(row.astype("<f4").tobytes()).decode()}
            for i, row in enumerate(rows)
        ]
        self.answer({"data": data})

    def answer(self, value: object) -> None:
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 -- the base class's name
        """Write no access log."""


ThreadingHTTPServer(("127.0.0.1", options.port), Handler).serve_forever()
