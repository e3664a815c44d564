// Receives deliveries and verifies X-Service-Signature. Node's own modules are enough.
//
//     SIGNING_SECRET=whsec_… PORT=8000 node receiver.mjs
//
// It speaks HTTP on the loopback interface: put a proxy that speaks TLS in front of it.

import { createHmac, timingSafeEqual } from "node:crypto";
import { createServer } from "node:http";

const TOLERANCE = 300; // seconds between the signature's time and our clock; more is not permitted
const LONGEST_BODY = 1024 * 1024; // bytes

/** Put your own code here. If it throws, the delivery is answered with 500 and comes again. */
async function handle(body) {
  console.log("processed", body.length, "bytes");
}

/** Checks the header's value against the body, byte by byte as it came. Returns what is wrong, or null. */
function fault(secret, signature, body, now) {
  const parts = signature.split(",").map((part) => part.split("="));
  const times = parts.filter(([name]) => name === "t").map(([, value]) => value ?? "");
  const digests = parts.filter(([name]) => name === "v1").map(([, value]) => value ?? "");
  if (times.length !== 1 || !/^[0-9]{1,15}$/.test(times[0])) return "the signature has no time";
  if (Math.abs(now - Number(times[0])) > TOLERANCE) return "the signature's time is too far from ours";
  // The key is the whole secret, "whsec_" included. The time is not signed.
  const expected = createHmac("sha256", secret).update(body).digest();
  const same = (digest) => /^[0-9a-f]{64}$/.test(digest) && timingSafeEqual(expected, Buffer.from(digest, "hex"));
  return digests.some(same) ? null : "the signature does not match";
}

const secret = process.env.SIGNING_SECRET ?? "";
if (!/^whsec_[0-9a-f]{64}$/.test(secret)) {
  console.error("SIGNING_SECRET is missing, or is not what was shown: whsec_ and 64 characters");
  process.exit(1);
}
// What is being processed or is done. In production: a unique key in your database, written in the transaction of the
// processing.
const seen = new Map();

/** Returns the status and the text of the answer. */
async function receive(headers, body) {
  const delivery = headers["x-service-webhook-id"];
  const why = fault(secret, headers["x-service-signature"] ?? "", body, Date.now() / 1000);
  if (why) return [400, why];
  if (!delivery) return [400, "X-Service-Webhook-Id is missing"];
  const first = seen.get(delivery);
  if (first) return (await first) ? [200, "seen before"] : [500, "processing failed"]; // 2xx, or it comes again
  const done = handle(body).then(() => true, (error) => (console.error("processing failed:", error), false));
  seen.set(delivery, done);
  if (await done) return [200, "received"];
  seen.delete(delivery); // what failed has to come again
  return [500, "processing failed"];
}

const server = createServer(async (request, response) => {
  try {
    const chunks = [];
    let length = 0;
    for await (const chunk of request) {
      length += chunk.length;
      if (length > LONGEST_BODY) return response.writeHead(413, { connection: "close" }).end("the body is too long");
      chunks.push(chunk);
    }
    const [status, text] = await receive(request.headers, Buffer.concat(chunks));
    response.writeHead(status).end(text);
  } catch (error) {
    console.error("a request broke off:", error.message);
    response.destroy();
  }
});
server.listen(Number(process.env.PORT ?? 8000), "127.0.0.1", () => console.log("listening on port", server.address().port));
