"""Receives deliveries and verifies X-Service-Signature. Python's standard library is enough.

    SIGNING_SECRET=whsec_… PORT=8000 python3 receiver.py

It speaks HTTP on the loopback interface: put a proxy that speaks TLS in front of it.
"""

import hashlib
import hmac
import os
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TOLERANCE = 300  # seconds between the signature's time and our clock; more is not permitted


class Refused(Exception):
    """The delivery must not be processed."""


def verify(secret: str, signature: str, body: bytes, now: float) -> None:
    """Checks the header's value against the body, byte by byte as it came."""
    parts = [part.partition("=") for part in signature.split(",")]
    times = [value for name, _, value in parts if name == "t"]
    digests = [value for name, _, value in parts if name == "v1"]
    if len(times) != 1 or not (times[0].isascii() and times[0].isdigit()):
        raise Refused("the signature has no time")
    if abs(now - int(times[0])) > TOLERANCE:
        raise Refused("the signature's time is too far from ours")
    # The key is the whole secret, "whsec_" included. The time is not signed.
    expected = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest().encode()
    if not any(hmac.compare_digest(expected, digest.encode()) for digest in digests):
        raise Refused("the signature does not match")


class Receiver(BaseHTTPRequestHandler):
    # In production: a unique key in your database, written in the transaction that processes the delivery.
    seen: set[str] = set()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        try:
            verify(os.environ["SIGNING_SECRET"], self.headers.get("X-Service-Signature", ""), body, time.time())
        except Refused as why:
            return self.answer(400, str(why))
        delivery = self.headers.get("X-Service-Webhook-Id", "")
        if delivery in self.seen:
            return self.answer(200, "seen before")  # 2xx, or it comes again
        self.seen.add(delivery)
        self.answer(200, "received")  # only now parse the body and process it

    def answer(self, status: int, text: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), Receiver).serve_forever()
