"""Receives deliveries and verifies webhook-signature with the official library of Standard Webhooks.

    python3 -m venv venv && venv/bin/pip install standardwebhooks
    SIGNING_SECRET=whsec_… PORT=8000 venv/bin/python receiver_standard.py

It speaks HTTP on the loopback interface: put a proxy in front of it that speaks TLS and sends Content-Length.
"""

import os
import re
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from standardwebhooks.webhooks import Webhook, WebhookVerificationError

LONGEST_BODY = 1024 * 1024  # bytes


def process(body: bytes) -> None:
    """Put your own code here. If it raises, the delivery is answered with 500 and comes again."""
    print("processed", len(body), "bytes", flush=True)


class Receiver(BaseHTTPRequestHandler):
    secret = ""
    # In production: a unique key in your database, written in the transaction of the processing.
    seen: set[str] = set()
    one_at_a_time = threading.Lock()

    timeout = 10  # seconds for a request to arrive

    def do_POST(self) -> None:
        length = self.headers.get("Content-Length", "")
        if not re.fullmatch("[0-9]{1,9}", length):
            return self.answer(411, "Content-Length is missing")
        if int(length) > LONGEST_BODY:
            return self.answer(413, "the body is too long")
        body = self.rfile.read(int(length))
        if len(body) < int(length):
            self.close_connection = True  # the sender hung up
            return
        names = ("webhook-id", "webhook-timestamp", "webhook-signature")
        if any(len(self.headers.get_all(name, [])) != 1 for name in names):
            return self.answer(400, "not one of each header of Standard Webhooks")
        delivery = self.headers["webhook-id"]
        try:
            Webhook(self.secret).verify(body, {name: self.headers[name] for name in names})
        # ValueError: what is not even a signature. RecursionError: JSON that is nested deeper than the library reads.
        except (WebhookVerificationError, ValueError, RecursionError) as error:
            return self.answer(400, str(error))
        with self.one_at_a_time:
            if delivery in self.seen:
                return self.answer(200, "seen before")  # 2xx, or it comes again
            try:
                process(body)
            except Exception as error:
                self.log_error("processing failed: %r", error)
                return self.answer(500, "processing failed")
            self.seen.add(delivery)  # only now: what failed has to come again
        self.answer(200, "received")

    def answer(self, status: int, text: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())


if __name__ == "__main__":
    Receiver.secret = os.environ.get("SIGNING_SECRET", "")
    if not re.fullmatch("whsec_[0-9a-f]{64}", Receiver.secret):
        sys.exit("SIGNING_SECRET is missing, or is not what was shown: whsec_ and 64 characters")
    server = ThreadingHTTPServer(("127.0.0.1", int(os.environ.get("PORT", "8000"))), Receiver)
    print("listening on port", server.server_port, flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        pass
