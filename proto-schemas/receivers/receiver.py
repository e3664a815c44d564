"""Receives deliveries and verifies X-Service-Signature. Python's standard library is enough.

    SIGNING_SECRET=whsec_… PORT=8000 python3 receiver.py

It speaks HTTP on the loopback interface: put a proxy in front of it that speaks TLS and sends Content-Length.
"""

import hashlib
import hmac
import os
import re
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TOLERANCE = 300  # seconds between the signature's time and our clock; more is not permitted
LONGEST_BODY = 1024 * 1024  # bytes


def process(body: bytes) -> None:
    """Put your own code here. If it raises, the delivery is answered with 500 and comes again."""
    print("processed", len(body), "bytes", flush=True)


def fault(secret: str, signature: str, body: bytes, now: float) -> str | None:
    """Checks the header's value against the body, byte by byte as it came. Returns what is wrong, if anything is."""
    parts = [part.partition("=") for part in signature.split(",")]
    times = [value for name, _, value in parts if name == "t"]
    digests = [value for name, _, value in parts if name == "v1"]
    if len(times) != 1 or not re.fullmatch("[0-9]{1,18}", times[0]):
        return "the signature has no time"
    if abs(now - int(times[0])) > TOLERANCE:
        return "the signature's time is too far from ours"
    # The key is the whole secret, "whsec_" included. The time is not signed.
    expected = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest().encode()
    if not any(hmac.compare_digest(expected, digest.encode()) for digest in digests):
        return "the signature does not match"
    return None


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
        delivery = self.headers.get("X-Service-Webhook-Id", "")
        why = fault(self.secret, self.headers.get("X-Service-Signature", ""), body, time.time())
        if why is None and not delivery:
            why = "X-Service-Webhook-Id is missing"
        if why is not None:
            return self.answer(400, why)
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
