"""A small server in the place of somebody's webhook, on a lab's machine or in a pod: prints what it gets.

`python receiver.py PORT`: a line of JSON for each request, with its path. Standard library only.
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer


class Handler(BaseHTTPRequestHandler):
    """Takes everything."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        print(json.dumps({"path": self.path, **body}), flush=True)
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Stay silent."""


if __name__ == "__main__":
    server = HTTPServer(("", int(sys.argv[1])), Handler)
    print("ready", flush=True)
    server.serve_forever()
