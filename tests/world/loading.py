"""Run in a pod: callers that embed texts without pause, until standard input ends. Refusals are tried again."""

import json
import sys
import threading
import time
import urllib.error
import urllib.request

_PAUSE_SECONDS = 0.5  # after a refusal, or while no pod answers


def call(url: str, caller: int, texts: int) -> None:
    """Send one request after the other, each over a connection of its own, so that new pods get their share."""
    number = 0
    while True:
        number += 1
        words = [f"memory {caller} {number} {text} " + "of the lantern in the harbour " * 6 for text in range(texts)]
        body = json.dumps({"input": words}).encode()
        request = urllib.request.Request(f"{url}/v1/embeddings", body, {"content-type": "application/json"})  # noqa: S310
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:  # noqa: S310
                answer.read()
        except urllib.error.HTTPError as refused:
            if refused.code not in {429, 503}:
                sys.stderr.write(f"{refused.code}: {refused.read()[:500]!r}\n")
            time.sleep(_PAUSE_SECONDS)
        except OSError:
            time.sleep(_PAUSE_SECONDS)


def main(url: str, callers: str, texts: str) -> None:
    """Let the callers run until nobody holds standard input open."""
    for caller in range(int(callers)):
        threading.Thread(target=call, args=(url, caller, int(texts)), daemon=True).start()
    sys.stdin.read()


main(*sys.argv[1:])
