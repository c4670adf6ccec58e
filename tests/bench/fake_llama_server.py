"""Speaks as much of llama-server's HTTP as the bench needs, and logs what `/infill` is asked."""

from __future__ import annotations

import json
import os
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

RECOMPUTED = 2 if "--spm-infill" in sys.argv else 500


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.answer({"status": "ok"})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/tokenize":
            self.answer({"tokens": []})
            return
        with Path(os.environ["FAKE_LLAMA_LOG"]).open("a") as log:
            log.write(json.dumps(body) + "\n")
        timings = {"prompt_n": RECOMPUTED, "predicted_n": body["n_predict"]}
        self.answer({"content": "\x00", "tokens_evaluated": 1000, "timings": timings})

    def answer(self, value: dict[str, Any]) -> None:
        data = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args: object) -> None:
        """Say nothing."""


if __name__ == "__main__":
    if "--version" in sys.argv:
        sys.stdout.write("version: fake\n")
    else:
        HTTPServer(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), Handler).serve_forever()
