"""Registers a webhook, and replaces its signing secret: see README.md. Python's standard library is enough.

    export BASE_URL=https://HOST/api/v1 KEY=wk_… URL=https://erp.example.com/hooks EVENTS=quote.closed,quote.accepted
    export NAME=erp-quotes SECRETS=/var/lib/erp/webhooks.json
    python3 provision.py register
    python3 provision.py replace-secret

After an error, or a kill at any line, run the same command again. The receiver accepts each `signing_secret` of
SECRETS, a list of webhooks. A webhook without one is being registered, with its `key` as the Idempotency-Key.
"""

import fcntl
import http.client
import json
import os
import sys
import time
import urllib.request
import uuid

VARIABLES = ("BASE_URL", "KEY", "URL", "EVENTS", "NAME", "SECRETS")
BASE_URL, KEY, URL, EVENTS, NAME, SECRETS = (os.environ.get(name, "").strip() for name in VARIABLES)
# Further members of a registration belong here, such as `headers`.
SETTINGS = {"name": NAME, "url": URL, "events": EVENTS.split(",")}
# The longest wait in seconds: for an answer of the API, for a test to succeed, for the old webhook's deliveries.
WAIT = int(os.environ.get("WAIT", "90"))
# The time in seconds in which both webhooks receive each event. Until 45 s after a registration, the service may store
# events for the old webhook alone.
OVERLAP = int(os.environ.get("OVERLAP", "60"))


class EveryAnswer(urllib.request.HTTPErrorProcessor):
    """Returns errors and redirects like any answer: the key follows no redirect."""

    def http_response(self, request, response):
        return response

    https_response = http_response


api = urllib.request.build_opener(EveryAnswer)


def call(method, path, expected, body=None, idempotency_key=None):
    """Sends a request, and repeats it after errors that may pass: each request here is safe to repeat. Returns JSON and
    headers of the answer, if its status or code is expected."""
    headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
    headers |= {"Idempotency-Key": idempotency_key} if idempotency_key else {}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(BASE_URL.rstrip("/") + path, data, headers, method=method)
    end = time.monotonic() + WAIT
    while True:
        pause = "2"
        try:
            with api.open(request, timeout=30) as answer:
                text = answer.read().decode(errors="replace")
            is_json = answer.headers.get_content_type() in ("application/json", "application/problem+json")
            content = json.loads(text) if is_json else {}
            if answer.status in expected or content.get("code") in expected:
                return content, answer.headers
            error = f"{answer.status} {text}"
            if answer.status not in (408, 429, 502, 503, 504):
                sys.exit(f"{method} {path}: {error}\nNothing is lost: remove the cause, and run this again.")
            pause = answer.headers.get("Retry-After", pause)
        except (OSError, http.client.HTTPException) as fault:
            error = f"no answer of the API: {fault}"
        pause = int(pause) if pause.isdecimal() else 2
        if time.monotonic() + pause > end:
            sys.exit(f"{method} {path}: {error}\nNothing is lost: run this again later.")
        print(f"{method} {path}: {error}\ntrying again in {pause} s", flush=True)
        time.sleep(pause)


def save(webhooks):
    """Writes SECRETS. A reader gets the old text or the new one, also after a power failure."""
    with open(os.open(SECRETS + ".new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "w") as file:
        json.dump(webhooks, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    os.replace(SECRETS + ".new", SECRETS)
    os.fsync(FOLDER)


def register(webhooks):
    """Registers the last webhook, and saves its secret. A webhook whose secret was lost is deleted."""
    new = webhooks[-1]
    settings = {**SETTINGS, "external_id": NAME if len(webhooks) == 1 else f"{NAME}.next"}
    while "signing_secret" not in new:
        created, headers = call("POST", "/webhooks/", (201, "registered_before"), settings, new["key"])
        if "signing_secret" in created:
            new.update(id=created["id"], signing_secret=created["signing_secret"])
            print(f"registered {new['id']}", flush=True)
        else:
            lost = headers["Location"].rstrip("/").rsplit("/", 1)[1]
            call("DELETE", f"/webhooks/{lost}/", (204, 404))
            print(f"deleted {lost}, as the answer with its secret was lost", flush=True)
            new["key"] = str(uuid.uuid4())
        save(webhooks)


def change(webhook, members):
    """Changes a registered webhook. Equal values change nothing."""
    changed, _ = call("PATCH", f"/webhooks/{webhook['id']}/", (200,), members)
    if not changed["is_active"]:
        sys.exit(f"{webhook['id']} is paused: set is_active to true, and run this again.")


def test(webhook):
    """Sends a test, and waits until the receiver has accepted it. Returns the time at which the service stored it."""
    path, end, pause, attempts = f"/webhooks/{webhook['id']}/", time.monotonic() + WAIT, 0.05, 0
    sent, _ = call("POST", f"{path}test/", (202,), {})
    while True:
        delivery, _ = call("GET", f"{path}deliveries/{sent['id']}/", (200,))
        if delivery["state"] == "succeeded":
            print(f"the receiver has accepted a test of {webhook['id']}", flush=True)
            return delivery["created_at"]
        if delivery["attempts"] > attempts:
            attempts, last = delivery["attempts"], delivery["attempt_log"][-1]
            print(f"the test failed: {last['error']} {last['response_body']}", flush=True)
        if delivery["state"] not in ("pending", "retrying") or time.monotonic() > end:
            print(f"the test is {delivery['state']}", flush=True)
            sys.exit(f"Let the receiver accept each secret of {SECRETS}, and run this again.")
        time.sleep(pause)
        pause = min(1, 2 * pause)


def has_waiting(webhook, before):
    """Returns whether a webhook has waiting deliveries that were stored before a time."""
    for state in ("pending", "retrying"):
        cursor = ""
        while cursor is not None:
            path = f"/webhooks/{webhook['id']}/deliveries/?limit=200&state={state}{cursor}"
            page, _ = call("GET", path, (200, 404))  # 404: deleted, and its log has expired
            if any(waiting["created_at"] < before and not waiting["is_test"] for waiting in page.get("data", [])):
                return True
            cursor = f"&cursor={page['next_cursor']}" if page.get("next_cursor") else None
    return False


def replace(old, new, before):
    """Deletes the old webhook after it has delivered what was stored before a time: the new one delivers the rest."""
    print(f"both webhooks receive events for {OVERLAP} s, and until the old one has delivered what it has", flush=True)
    time.sleep(OVERLAP)
    end = time.monotonic() + WAIT
    while has_waiting(old, before):
        print(f"{old['id']} has waiting deliveries from before the test", flush=True)
        if time.monotonic() > end:
            sys.exit("Both webhooks stay. Run this again later: retries end after 12 hours.")
        time.sleep(2)
    call("DELETE", f"/webhooks/{old['id']}/", (204, 404))
    change(new, {"external_id": NAME})
    save([new])
    print(f"deleted {old['id']}, and its secret from {SECRETS}", flush=True)


def main(command):
    webhooks = []
    if os.path.exists(SECRETS):
        with open(SECRETS) as file:
            webhooks = json.load(file)
    registered = [webhook for webhook in webhooks if "signing_secret" in webhook]
    if command == "replace-secret" and not registered:
        sys.exit(f"{SECRETS} has no secret: register first.")
    for webhook in registered[-1:]:
        change(webhook, SETTINGS)
    if not webhooks or command == "replace-secret" and len(webhooks) == 1:
        webhooks.append({"key": str(uuid.uuid4())})
        save(webhooks)
    register(webhooks)
    stored_at = test(webhooks[-1])
    if len(webhooks) == 2:
        replace(*webhooks, stored_at)
    print(f"done: {SECRETS} has the secret of {webhooks[-1]['id']}", flush=True)


if sys.argv[1:] not in (["register"], ["replace-secret"]):
    sys.exit("usage: provision.py register | replace-secret")
if missing := [name for name in VARIABLES if not os.environ.get(name)]:
    sys.exit(f"Set {', '.join(missing)}: the head of this file shows how.")
FOLDER = os.open(os.path.dirname(os.path.abspath(SECRETS)), os.O_RDONLY)
try:
    fcntl.flock(FOLDER, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    sys.exit("Another run is at work in this folder: wait until it has ended.")
main(sys.argv[1])
