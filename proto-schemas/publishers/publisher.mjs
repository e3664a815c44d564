// Publishes business events: one by one, or from an outbox in PostgreSQL.
//
//     AMQP_URL=amqp://… node publisher.mjs publish < event.json
//     AMQP_URL=amqp://… DATABASE_URL=postgres://… node publisher.mjs relay
//
// In your service, call `store` with the client of the business change. The relay runs beside it, once or several times.

import { readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import amqp from "amqplib";
import Ajv from "ajv/dist/2020.js";
import addFormats from "ajv-formats";
import pg from "pg";

const EXCHANGE = process.env.EVENTS_EXCHANGE ?? "business.events";
const SCHEMA = process.env.EVENT_SCHEMA ?? fileURLToPath(new URL("../event.schema.json", import.meta.url));
const validate = addFormats(new Ajv({ allErrors: true })).compile(JSON.parse(readFileSync(SCHEMA, "utf8")));
const BATCH = 100;
// After so many an event that always comes back is set aside: it gets a fault.
const TRIES = 10;
// Milliseconds. A broker without memory or disk stops reading, and one that hangs says nothing: neither may hold the rows for long.
const SILENCE = 10_000;

/** The event would be refused. The message says why. */
export class Invalid extends Error {}

/** No queue takes the event at the moment. */
export class Returned extends Error {}

/** Reads an event and validates it against the schema. */
export function check(text) {
  let event;
  try {
    event = JSON.parse(text);
  } catch (error) {
    throw new Invalid(`not JSON: ${error.message}`);
  }
  if (validate(event)) return event;
  throw new Invalid(validate.errors.map((fault) => `${fault.instancePath || "/"}: ${fault.message}`).join("; "));
}

/**
 * Stores an event in the caller's transaction: it is published if that commits, and only then. An event that is stored
 * already stays as it is. Another event with its id is refused.
 */
export async function store(client, text) {
  const id = check(text).event_id;
  const made = await client.query(
    "INSERT INTO outbox (event_id, event) VALUES ($1, $2) ON CONFLICT (event_id) DO NOTHING", [id, text]);
  if (made.rowCount) return;
  const same = await client.query("SELECT FROM outbox WHERE event_id = $1 AND event = $2", [id, text]);
  if (!same.rowCount) throw new Invalid(`event_id: another event has ${id}`);
}

/** What the promise resolves to, or an error if the server is silent for too long. */
async function soon(promise) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(reject, SILENCE, new Error(`no answer within ${SILENCE / 1000} s`));
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

/** A connection to the broker with confirms. */
export class Publisher {
  #returned = new Set();
  #waiting = new Set();
  #fault;

  static async connect(url) {
    const publisher = new Publisher();
    publisher.connection = await amqp.connect(url, { timeout: SILENCE });
    publisher.#watch(publisher.connection);
    try {
      publisher.channel = await soon(publisher.connection.createConfirmChannel());
    } catch (error) {
      await publisher.close();
      throw error;
    }
    publisher.#watch(publisher.channel);
    publisher.channel.on("return", (message) => publisher.#returned.add(message.properties.messageId));
    return publisher;
  }

  /** When it closes, whatever waits for a confirm is told why none will come. */
  #watch(emitter) {
    emitter.on("error", (error) => (this.#fault = error));
    emitter.on("close", () => {
      this.isClosed = true;
      const fault = this.#fault ?? new Error("the connection was closed before the confirm");
      for (const refuse of this.#waiting) refuse(fault);
    });
  }

  /** Resolves when the broker has confirmed the event. Whatever it throws, publish the same text again. */
  async publish(text) {
    const event = check(text);
    const options = { persistent: true, mandatory: true, contentType: "application/json", messageId: event.event_id };
    let refuse;
    const confirmed = new Promise((resolve, reject) => {
      this.#waiting.add((refuse = reject));
      this.channel.publish(EXCHANGE, event.event_type, Buffer.from(text), options, (error) =>
        error ? reject(this.#fault ?? error) : resolve());
    });
    await soon(confirmed).finally(() => this.#waiting.delete(refuse));
    // Mandatory: an event that no queue takes comes back before its confirm. It is an error, not lost.
    if (this.#returned.delete(event.event_id)) throw new Returned(`no queue takes ${event.event_type}`);
  }

  /** Closes the connection, in order if the broker answers. */
  async close() {
    await Promise.race([this.connection.close(), sleep(1000, null, { ref: false })]).catch(() => {});
    this.connection.connection.stream.destroy(new Error("closed"));
  }
}

/** Publishes what waits in the outbox, the oldest first. Resolves to how many rows it dealt with. */
export async function relaySome(client, publisher) {
  await client.query("BEGIN");
  // Another relay skips the rows that this one has locked.
  const { rows } = await client.query(
    "SELECT position, event FROM outbox WHERE published_at IS NULL AND fault IS NULL " +
      "AND (returned_at IS NULL OR returned_at < now() - interval '1 minute') " +
      "ORDER BY position LIMIT $1 FOR UPDATE SKIP LOCKED", [BATCH]);
  const results = await Promise.allSettled(rows.map((row) => publisher.publish(row.event)));
  const done = rows.filter((_, nth) => results[nth].status === "fulfilled").map((row) => row.position);
  await client.query("UPDATE outbox SET published_at = now() WHERE position = ANY($1)", [done]);
  for (const [nth, { reason }] of results.entries()) {
    if (reason instanceof Invalid) {
      console.error("event at", rows[nth].position, "can never be published:", reason.message);
      await client.query("UPDATE outbox SET fault = $1 WHERE position = $2", [reason.message, rows[nth].position]);
    } else if (reason instanceof Returned) {
      console.error("event at", rows[nth].position, "came back:", reason.message);
      const marked = await client.query(
        "UPDATE outbox SET returned_at = now(), returns = returns + 1, " +
          "fault = CASE WHEN returns + 1 >= $1 THEN $2 END WHERE position = $3 RETURNING fault",
        [TRIES, `no queue took it, ${TRIES} times`, rows[nth].position]);
      const { fault } = marked.rows[0];
      if (fault) console.error("event at", rows[nth].position, "IS SET ASIDE:", fault);
    }
  }
  await client.query("COMMIT");
  const failed = results.find(({ reason }) => reason && !(reason instanceof Invalid || reason instanceof Returned));
  if (failed) throw failed.reason;
  return rows.length;
}

/** Relays until it is told to stop. It survives whatever happens to either server. */
export async function relay(stop) {
  let pause = 100;
  while (!stop.aborted) {
    const client = new pg.Client({
      connectionString: process.env.DATABASE_URL, connectionTimeoutMillis: SILENCE, query_timeout: SILENCE,
    });
    client.on("error", () => {}); // what runs fails as well
    let publisher;
    try {
      await client.connect();
      publisher = await Publisher.connect(process.env.AMQP_URL);
      while (!stop.aborted && !publisher.isClosed) {
        if ((await relaySome(client, publisher)) < BATCH) await sleep(200, null, { signal: stop }).catch(() => {});
        pause = 100;
      }
    } catch (error) {
      console.error("relaying failed; trying again:", error.message);
    } finally {
      await Promise.allSettled([publisher?.close(), client.end()]);
    }
    if (!stop.aborted) await sleep(pause, null, { signal: stop }).catch(() => {});
    pause = Math.min(pause * 2, 5000);
  }
}

/** Publishes an event, again and again until it is confirmed. */
async function publishOne(text, patience) {
  check(text);
  const end = Date.now() + patience * 1000;
  for (let pause = 100; ; pause = Math.min(pause * 2, 5000)) {
    try {
      const publisher = await Publisher.connect(process.env.AMQP_URL);
      return await publisher.publish(text).finally(() => publisher.close());
    } catch (error) {
      if (Date.now() + pause > end) throw new Error(`not confirmed within ${patience} s: ${error.message}`);
    }
    await sleep(pause);
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  if (process.argv[2] === "relay") {
    const stop = new AbortController();
    for (const name of ["SIGTERM", "SIGINT"]) process.on(name, () => stop.abort());
    await relay(stop.signal);
  } else if (process.argv[2] === "publish") {
    const text = readFileSync(0, "utf8");
    try {
      await publishOne(text, Number(process.env.PATIENCE ?? 60));
      console.log("confirmed", check(text).event_id);
    } catch (error) {
      console.error(error instanceof Invalid ? `not an event: ${error.message}` : error.message);
      process.exitCode = error instanceof Invalid ? 2 : 1;
    }
  } else {
    console.error("say publish or relay");
    process.exitCode = 1;
  }
}
