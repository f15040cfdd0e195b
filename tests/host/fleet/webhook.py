# SPDX-License-Identifier: Apache-2.0
"""A stand-in for KubeVirt's virt-api: the eviction of a guest's pod is refused with 429, and the guest is
migrated (pkg/virt-api/webhooks/validating-webhook/admitters/pod-eviction-admitter.go).

usage: webhook.py PORT CERTIFICATE KEY      prints the name of each pod that was to go
"""

from __future__ import annotations

import json
import ssl
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Handler(BaseHTTPRequestHandler):
    """Answers reviews of evictions."""

    def do_POST(self) -> None:
        """Refuse if the pod is a guest's."""
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["request"]
        answer = {"uid": asked["uid"], "allowed": True}
        if asked["name"].startswith("virt-launcher"):
            text = f'Eviction triggered evacuation of VMI "{asked["namespace"]}/{asked["name"]}"'
            answer |= {"allowed": False, "status": {"code": 429, "message": text}}
        print(asked["name"], flush=True)
        review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": answer}
        body = json.dumps(review).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Write no log of requests."""


def main() -> None:
    """Serve until killed."""
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(sys.argv[2], sys.argv[3])
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
