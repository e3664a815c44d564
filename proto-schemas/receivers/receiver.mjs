// Receives deliveries and verifies X-Service-Signature. Node's own modules are enough.
//
//     SIGNING_SECRET=whsec_… PORT=8000 node receiver.mjs
//
// It speaks HTTP on the loopback interface: put a proxy that speaks TLS in front of it.

import { createHmac, timingSafeEqual } from "node:crypto";
import { createServer } from "node:http";

const TOLERANCE = 300; // seconds between the signature's time and our clock; more is not permitted

/** Checks the header's value against the body, byte by byte as it came. Returns what is wrong, or null. */
export function fault(secret, signature, body, now) {
  const parts = signature.split(",").map((part) => part.split("="));
  const times = parts.filter(([name]) => name === "t").map(([, value]) => value);
  const digests = parts.filter(([name]) => name === "v1").map(([, value]) => value ?? "");
  if (times.length !== 1 || !/^[0-9]+$/.test(times[0])) return "the signature has no time";
  if (Math.abs(now - Number(times[0])) > TOLERANCE) return "the signature's time is too far from ours";
  // The key is the whole secret, "whsec_" included. The time is not signed.
  const expected = createHmac("sha256", secret).update(body).digest();
  const same = (digest) => /^[0-9a-f]{64}$/.test(digest) && timingSafeEqual(expected, Buffer.from(digest, "hex"));
  return digests.some(same) ? null : "the signature does not match";
}

// In production: a unique key in your database, written in the transaction that processes the delivery.
const seen = new Set();

createServer(async (request, response) => {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  const signature = request.headers["x-service-signature"] ?? "";
  const why = fault(process.env.SIGNING_SECRET, signature, Buffer.concat(chunks), Date.now() / 1000);
  if (why) return response.writeHead(400).end(why);
  const delivery = request.headers["x-service-webhook-id"];
  if (seen.has(delivery)) return response.writeHead(200).end("seen before"); // 2xx, or it comes again
  seen.add(delivery);
  response.writeHead(200).end("received"); // only now parse the body and process it
}).listen(Number(process.env.PORT), "127.0.0.1");
