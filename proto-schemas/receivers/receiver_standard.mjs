// Receives deliveries and verifies webhook-signature with the official library of Standard Webhooks.
//
//     npm install standardwebhooks
//     SIGNING_SECRET=whsec_… PORT=8000 node receiver_standard.mjs
//
// It speaks HTTP on the loopback interface: put a proxy that speaks TLS in front of it.

import { createServer } from "node:http";

import { Webhook } from "standardwebhooks";

const LONGEST_BODY = 1024 * 1024; // bytes

/** Put your own code here. If it throws, the delivery is answered with 500 and comes again. */
async function handle(body) {
  console.log("processed", body.length, "bytes");
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
  try {
    new Webhook(secret).verify(body.toString("utf8"), headers);
  } catch (error) {
    return [400, error.message];
  }
  const delivery = headers["webhook-id"]; // it is signed, so it is there
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
