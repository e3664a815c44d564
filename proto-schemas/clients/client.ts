// Registers, reads and deletes a webhook with openapi-fetch and the types that openapi-typescript made.
import assert from "node:assert/strict";
import createClient, { type Middleware } from "openapi-fetch";
import type { components, paths } from "./openapi.js";

type NewWebhook = components["schemas"]["NewWebhook"];
type Problem = components["schemas"]["Problem"];

function setting(name: string): string {
  const value = process.env[name];
  assert(value, `${name} is not set`);
  return value;
}

// Every call sends the program's key.
const key = setting("KEY");
const keyed: Middleware = { onRequest: ({ request }) => request.headers.set("Authorization", `Bearer ${key}`) };
const api = createClient<paths>({ baseUrl: setting("BASE_URL") });
api.use(keyed);

// Register a webhook for two event types. Its signing secret is shown this once.
const body: NewWebhook = { name: "TypeScript", url: setting("URL"), events: ["quote.closed", "quote.accepted"] };
const created = await api.POST("/webhooks/", { body });
assert(created.data, created.error?.detail);
assert.match(created.data.signing_secret, /^whsec_/);
const id = created.data.id;
console.log(`registered ${id}, and its signing secret was shown`);
const params = { path: { id } };

// Read it.
const read = await api.GET("/webhooks/{id}/", { params });
assert(read.data, read.error?.detail);
assert.deepEqual({ name: read.data.name, url: read.data.url, events: read.data.events }, body);

// Find it in the list, page by page.
let found = false;
for (let cursor: string | null | undefined; !found && cursor !== null; ) {
  const page = await api.GET("/webhooks/", { params: { query: cursor === undefined ? {} : { cursor } } });
  assert(page.data, page.error?.detail);
  found = page.data.data.some((webhook) => webhook.id === id);
  cursor = page.data.next_cursor;
}
assert(found, "the list does not have it");

// What cannot be registered is answered with a problem that names each faulty field.
const refused = await api.POST("/webhooks/", { body: { ...body, url: "http://localhost/", events: [] } });
const problem: Problem | undefined = refused.error;
assert.equal(problem?.code, "validation_failed");
assert.deepEqual(problem.errors?.map((fault) => fault.field).sort(), ["events", "url"]);

// Delete it. Then it is not found.
assert.equal((await api.DELETE("/webhooks/{id}/", { params })).response.status, 204);
const gone = await api.GET("/webhooks/{id}/", { params });
assert.equal(gone.response.status, 404);
assert.equal(gone.error?.code, "not_found");
