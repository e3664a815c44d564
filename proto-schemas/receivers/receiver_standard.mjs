// Receives deliveries and verifies webhook-signature with the official library of Standard Webhooks.
//
//     npm install standardwebhooks
//     SIGNING_SECRET=whsec_… PORT=8000 node receiver_standard.mjs
//
// It speaks HTTP on the loopback interface: put a proxy that speaks TLS in front of it.

import { createServer } from "node:http";

import { Webhook } from "standardwebhooks";

const webhook = new Webhook(process.env.SIGNING_SECRET);
// In production: a unique key in your database, written in the transaction that processes the delivery.
const seen = new Set();

createServer(async (request, response) => {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  try {
    webhook.verify(Buffer.concat(chunks).toString("utf8"), request.headers);
  } catch (why) {
    return response.writeHead(400).end(why.message);
  }
  const delivery = request.headers["webhook-id"];
  if (seen.has(delivery)) return response.writeHead(200).end("seen before"); // 2xx, or it comes again
  seen.add(delivery);
  response.writeHead(200).end("received"); // now process it
}).listen(Number(process.env.PORT), "127.0.0.1");
