"""Receives deliveries and verifies webhook-signature with the official library of Standard Webhooks.

    pip install standardwebhooks
    SIGNING_SECRET=whsec_… PORT=8000 python3 receiver_standard.py

It speaks HTTP on the loopback interface: put a proxy that speaks TLS in front of it.
"""

import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from standardwebhooks.webhooks import Webhook, WebhookVerificationError

webhook = Webhook(os.environ["SIGNING_SECRET"])


class Receiver(BaseHTTPRequestHandler):
    # In production: a unique key in your database, written in the transaction that processes the delivery.
    seen: set[str] = set()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        try:
            webhook.verify(body, {name.lower(): value for name, value in self.headers.items()})
        except WebhookVerificationError as why:
            return self.answer(400, str(why))
        if self.headers["webhook-id"] in self.seen:
            return self.answer(200, "seen before")  # 2xx, or it comes again
        self.seen.add(self.headers["webhook-id"])
        self.answer(200, "received")  # now process it

    def answer(self, status: int, text: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), Receiver).serve_forever()
