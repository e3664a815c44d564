"""Publishes business events: one by one, or from an outbox in PostgreSQL.

    AMQP_URL=amqp://… python3 publisher.py publish < event.json
    AMQP_URL=amqp://… DATABASE_URL=postgres://… python3 publisher.py relay

In your service, call `store` with the cursor of the business change. The relay runs beside it, once or several times.
"""

import contextlib
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

import jsonschema
import pika
import pika.exceptions
import psycopg

EXCHANGE = os.environ.get("EVENTS_EXCHANGE", "business.events")
SCHEMA = Path(os.environ.get("EVENT_SCHEMA", Path(__file__).parent.parent / "event.schema.json"))
FORMATS = jsonschema.Draft202012Validator.FORMAT_CHECKER
if "date-time" not in FORMATS.checkers:
    raise ImportError("pip install 'jsonschema[format]': without it, a wrong timestamp would pass")
VALIDATOR = jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text()), format_checker=FORMATS)
BATCH = 100
# After so many an event that always comes back is set aside: it gets a fault.
TRIES = 10
# Seconds. A broker without memory or disk stops reading, and one that hangs says nothing: neither may hold the rows for long.
SILENCE = 10
DATABASE = {"connect_timeout": SILENCE, "keepalives_idle": SILENCE, "tcp_user_timeout": SILENCE * 1000}
# What the servers or the network do to us. Wait, connect again, publish again.
AWAY = (pika.exceptions.AMQPError, psycopg.Error, OSError)


class Invalid(Exception):
    """The event would be refused. Its text says why."""


def _no_constant(name: str) -> None:
    """Refuses NaN and Infinity: `json.dumps` writes them, but they are no JSON."""
    raise ValueError(f"{name} is no number of JSON")


def check(text: str) -> dict:
    """Reads an event and validates it against the schema."""
    try:
        text.encode()
        event = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise Invalid(f"not JSON: {error}") from error
    faults = [f"{fault.json_path}: {fault.message}" for fault in VALIDATOR.iter_errors(event)]
    if faults:
        raise Invalid("; ".join(faults))
    return event


def store(cursor: psycopg.Cursor, text: str) -> None:
    """Stores an event in the caller's transaction: it is published if that commits, and only then.

    An event that is stored already stays as it is. Another event with its id is refused.
    """
    event = (check(text)["event_id"], text)
    cursor.execute("INSERT INTO outbox (event_id, event) VALUES (%s, %s) ON CONFLICT (event_id) DO NOTHING", event)
    if cursor.rowcount == 0:
        cursor.execute("SELECT FROM outbox WHERE event_id = %s AND event = %s", event)
        if cursor.rowcount == 0:
            raise Invalid(f"event_id: another event has {event[0]}")


class Publisher:
    """A connection to the broker with confirms. One thread at a time may use it."""

    def __init__(self, url: str) -> None:
        parameters = pika.URLParameters(url)
        parameters.blocked_connection_timeout = SILENCE
        parameters.heartbeat = parameters.heartbeat or SILENCE
        self.connection = pika.BlockingConnection(parameters)
        self.channel = self.connection.channel()
        self.channel.confirm_delivery()

    def publish(self, text: str) -> None:
        """Returns when the broker has confirmed the event. Whatever it raises, publish the same text again."""
        event = check(text)
        properties = pika.BasicProperties(
            content_type="application/json", delivery_mode=2, message_id=event["event_id"]
        )
        # Mandatory: an event that no queue takes is an error, not lost.
        self.channel.basic_publish(EXCHANGE, event["event_type"], text.encode(), properties, mandatory=True)

    def wait(self, seconds: float) -> None:
        """Waits, and answers the broker's heartbeats meanwhile."""
        self.connection.process_data_events(time_limit=seconds)

    def close(self) -> None:
        """Closes the connection, if it is open."""
        with contextlib.suppress(*AWAY):
            self.connection.close()


def relay_some(database: psycopg.Connection, publisher: Publisher) -> int:
    """Publishes what waits in the outbox, the oldest first. Returns how many rows it dealt with."""
    done: list[int] = []
    failure = None
    with database.transaction(), database.cursor() as cursor:
        # Another relay skips the rows that this one has locked.
        cursor.execute(
            "SELECT position, event FROM outbox WHERE published_at IS NULL AND fault IS NULL "
            "AND (returned_at IS NULL OR returned_at < now() - interval '1 minute') "
            "ORDER BY position LIMIT %s FOR UPDATE SKIP LOCKED",
            (BATCH,),
        )
        rows = cursor.fetchall()
        try:
            for position, text in rows:
                try:
                    publisher.publish(text)
                    done.append(position)
                except Invalid as error:
                    print("event at", position, "can never be published:", error, file=sys.stderr)
                    cursor.execute("UPDATE outbox SET fault = %s WHERE position = %s", (str(error), position))
                except pika.exceptions.UnroutableError:
                    print("event at", position, "came back: no queue takes it", file=sys.stderr)
                    cursor.execute(
                        "UPDATE outbox SET returned_at = now(), returns = returns + 1, "
                        "fault = CASE WHEN returns + 1 >= %s THEN %s END WHERE position = %s RETURNING fault",
                        (TRIES, f"no queue took it, {TRIES} times", position),
                    )
                    if fault := cursor.fetchone()[0]:
                        print("event at", position, "IS SET ASIDE:", fault, file=sys.stderr)
        except AWAY as error:
            failure = error  # what was confirmed before it is marked all the same
        cursor.execute("UPDATE outbox SET published_at = now() WHERE position = ANY(%s)", (done,))
    if failure:
        raise failure
    return len(rows)


def relay(stop: threading.Event) -> None:
    """Relays until it is told to stop. It survives whatever happens to either server."""
    pause = 0.1
    while not stop.is_set():
        try:
            with (
                psycopg.connect(os.environ["DATABASE_URL"], **DATABASE) as database,
                contextlib.closing(Publisher(os.environ["AMQP_URL"])) as publisher,
            ):
                while not stop.is_set():
                    if relay_some(database, publisher) < BATCH:
                        publisher.wait(0.2)
                    pause = 0.1
        except AWAY as error:
            print("relaying failed; trying again:", repr(error), file=sys.stderr)
        stop.wait(pause)
        pause = min(pause * 2, 5)


def publish_one(text: str, patience: float) -> None:
    """Publishes an event, again and again until it is confirmed."""
    end = time.monotonic() + patience
    pause = 0.1
    while True:
        try:
            with contextlib.closing(Publisher(os.environ["AMQP_URL"])) as publisher:
                return publisher.publish(text)
        except AWAY as error:
            if time.monotonic() + pause > end:
                sys.exit(f"not confirmed within {patience:g} s: {error!r}")
        time.sleep(pause)
        pause = min(pause * 2, 5)


if __name__ == "__main__":
    if sys.argv[1:] == ["relay"]:
        stopped = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stopped.set())
        relay(stopped)
    elif sys.argv[1:] == ["publish"]:
        try:
            message = sys.stdin.read()
            publish_one(message, float(os.environ.get("PATIENCE", "60")))
        except (Invalid, UnicodeDecodeError) as error:
            print("not an event:", error, file=sys.stderr)
            sys.exit(2)
        print("confirmed", check(message)["event_id"])
    else:
        sys.exit(__doc__)
