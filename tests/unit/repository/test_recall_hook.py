"""The hook of docs/adopt.md: what it asks the memory API for before a prompt, and what it puts beside the prompt."""

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

PAGE = (Path(__file__).parents[3] / "docs" / "adopt.md").read_text()


@contextmanager
def memory_api(contents: list[str], asked: list[dict[str, Any]]) -> Iterator[str]:
    """Serve a route that answers every recall with the same memories, and collect the requests."""

    class Route(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            asked.append({"path": self.path, "key": self.headers["Authorization"], **body})
            answer = json.dumps({"memories": [{"content": content} for content in contents]}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (the name in the standard library)
            pass

    with HTTPServer(("127.0.0.1", 0), Route) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            serving.join()


def run_hook(url: str) -> str:
    source = re.search(r"^```python\n(# recall_hook\.py\n.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert source is not None
    environment = {**os.environ, "MEMORY_API_URL": url, "MEMORY_API_KEY": "key-of-ana"}
    return subprocess.run(
        [sys.executable, "-c", source[1]],
        input=json.dumps({"prompt": "what must Bruno not eat"}),
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def test_the_hook_asks_for_five_likely_memories_and_puts_them_beside_the_prompt() -> None:
    asked: list[dict[str, Any]] = []
    with memory_api(["Bruno is allergic to chicken.", "Bruno is a dog."], asked) as url:
        shown = json.loads(run_hook(url))
    assert asked == [
        {
            "path": "/api/memories/recall",
            "key": "Bearer key-of-ana",
            "context": "what must Bruno not eat",
            "limit": 5,
            "least_relevance": "likely",
        }
    ]
    assert shown["hookSpecificOutput"] == {
        "hookEventName": "UserPromptSubmit",
        "additionalContext": "- Bruno is allergic to chicken.\n- Bruno is a dog.",
    }


def test_the_hook_says_nothing_where_no_memory_fits() -> None:
    with memory_api([], []) as url:
        assert run_hook(url) == ""
