// Makes the console pleasant. Every page works without it.

const EVERY = 5000;
const LONGEST_WAIT = 60000;
// A page that nobody uses for so long is not refreshed: each request would keep the session alive.
const UNUSED = 30 * 60000;

// Times in the browser's zone.
const formats = {
  clock: new Intl.DateTimeFormat([], { hour: "2-digit", minute: "2-digit" }),
  date: new Intl.DateTimeFormat([], { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" }),
  second: new Intl.DateTimeFormat([], { hour: "2-digit", minute: "2-digit", second: "2-digit" }),
  day: new Intl.DateTimeFormat([], { day: "numeric", month: "short" }),
  full: new Intl.DateTimeFormat([], { dateStyle: "medium", timeStyle: "medium" }),
};
const zone = formats.full.resolvedOptions().timeZone;

function localize(root) {
  for (const time of root.querySelectorAll("time[data-time]")) {
    const moment = new Date(time.dateTime);
    if (Number.isNaN(moment.getTime())) continue;
    const exact = formats.full.format(moment);
    const format = formats[time.dataset.time];
    if (!time.title) time.title = time.textContent;
    else if (!time.title.startsWith(exact)) time.title = `${exact} (${time.title})`;
    if (format) time.textContent = format.format(moment);
  }
}

// Names the zone, and has fields take times in it. The service is sent UTC.
function useZone() {
  const filledIn = (root) => [...root.querySelectorAll('input[type="datetime-local"]')].filter((input) => input.value);
  const written = (time) => new Date(time).toISOString().slice(0, 19);
  for (const place of document.querySelectorAll(".zone")) place.textContent = zone.replaceAll("_", " ");
  for (const input of filledIn(document)) {
    const moment = new Date(`${input.value}Z`);
    input.value = written(moment - moment.getTimezoneOffset() * 60000);
  }
  document.addEventListener("formdata", ({ target, formData }) => {
    for (const { name, value } of filledIn(target)) formData.set(name, written(value));
  });
}

// Whoever leaves a secret that was not copied is asked once.
const secret = document.getElementById("secret");
const ask = (event) => { event.preventDefault(); release(); };
const release = () => removeEventListener("beforeunload", ask);
if (secret) addEventListener("beforeunload", ask);
addEventListener("copy", () => { if (secret && getSelection().containsNode(secret, true)) release(); });

// Copies the text of an element.
function prepareCopies(root) {
  for (const button of root.querySelectorAll("[data-copy]")) {
    if (!navigator.clipboard) continue;
    button.hidden = false;
    button.addEventListener("click", async () => {
      const [label, name] = [button.dataset.label ??= button.textContent, button.dataset.name ??= button.ariaLabel ?? ""];
      try {
        await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent);
        button.textContent = "Copied";
        release();
      } catch {
        button.textContent = "Not allowed: select and copy it";
      }
      button.ariaLabel = button.textContent;
      setTimeout(() => {
        button.textContent = label;
        button.ariaLabel = name || label;
      }, 2000);
    });
  }
}

async function load(address, options) {
  const answer = await fetch(address, { credentials: "same-origin", cache: "no-store", ...options });
  if (answer.status === 304) return { isUnchanged: true };
  // The service redirects no refresh. A proxy that checks sessions may.
  if (answer.type === "opaqueredirect") throw Object.assign(new Error(), { status: 401 });
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  if (!answer.ok) {
    const own = page.getElementById("problem");
    const problem = new Error(own?.textContent ?? "");
    // Not a number if a proxy answers with a date.
    const pause = 1000 * answer.headers.get("retry-after") || 0;
    throw Object.assign(problem, { status: answer.status, isOwn: own !== null, pause });
  }
  return { page, address: answer.url, tag: answer.headers.get("etag") };
}

// What a user reads or fills in stays as it is.
function isInUse(element) {
  const selection = getSelection();
  return element.contains(document.activeElement)
    || element.querySelector("details[open]:not([data-open]), details[data-open]:not([open])") !== null
    || (!selection.isCollapsed && selection.containsNode(element, true));
}

// Replaces what has changed, but nothing that is in use: returns whether there was such. Rows that came or went are only
// announced, so nothing jumps.
function refresh(page) {
  let isWhole = true;
  for (const old of document.querySelectorAll("[data-live][id]")) {
    const fresh = page.getElementById(old.id);
    if (!fresh) {
      announce();
      continue;
    }
    localize(fresh);
    prepareCopies(fresh);
    if (old.tagName !== fresh.tagName) announce();
    else if (old.dataset.live === "rows") isWhole = refreshRows(old, fresh) && isWhole;
    else if (!old.isEqualNode(fresh)) isWhole = replaced(old, fresh) && isWhole;
  }
  return isWhole;
}

function replaced(old, fresh) {
  if (isInUse(old)) return false;
  old.replaceWith(document.adoptNode(fresh));
  return true;
}

function refreshRows(old, fresh) {
  const ids = (list) => [...list.children].map((row) => row.id).join();
  const isOther = ids(old) !== ids(fresh);
  let isWhole = true;
  for (const row of [...fresh.children]) {
    const shown = document.getElementById(row.id);
    if (shown && !shown.isEqualNode(row)) isWhole = replaced(shown, row) && isWhole;
  }
  if (isOther) announce();
  return isWhole;
}

// A later page stays as it is, whatever comes before it.
function announce() {
  const notice = document.getElementById("fresh");
  if (notice && !new URLSearchParams(location.search).has("cursor")) notice.hidden = false;
}

let loaded = new Date();
let used = Date.now();
let wait = EVERY;
let known = {};

for (const sign of ["keydown", "pointerdown", "wheel"]) {
  addEventListener(sign, () => { used = Date.now(); }, { passive: true });
}

// Shows why the page is not refreshed, or that it is.
function say(reason) {
  for (const toast of document.querySelectorAll(".toasts > [id]")) {
    toast.hidden = toast.id !== reason;
    const time = toast.querySelector("span");
    if (time) time.textContent = formats.full.format(loaded);
  }
}

async function follow() {
  const isUnused = Date.now() - used > UNUSED;
  if (isUnused && document.querySelector("main [data-live]")) say("unused");
  if (!isUnused && !document.hidden && document.querySelector("main [data-live]")) {
    try {
      const source = document.querySelector("[data-live-from]");
      const address = source?.dataset.liveFrom ?? location.href.split("#")[0];
      const headers = { "x-refresh": "1" };
      if (known.tag && known.address === address) headers["if-none-match"] = known.tag;
      const { page, isUnchanged, tag } = await load(address, { redirect: "manual", headers });
      if (!isUnchanged) {
        known = refresh(page) ? { address, tag } : {};
      }
      loaded = new Date();
      wait = EVERY;
      say(null);
    } catch ({ status, isOwn, pause }) {
      if (status === 401) return say("ended");
      // A proxy may answer so for a moment.
      if (isOwn && (status === 403 || status === 404)) return say("gone");
      if (status === 429) {
        wait = Math.min(Math.max(pause, EVERY), LONGEST_WAIT);
      } else {
        say("stale");
        wait = Math.min(wait * 2, LONGEST_WAIT);
      }
    }
  }
  setTimeout(follow, wait);
}

// A form whose result is shown beside it, and followed.
function prepareForms() {
  // What was counted is outdated once something else is filled in.
  for (const form of document.querySelectorAll("form[data-outdates]")) {
    form.addEventListener("input", () => document.getElementById(form.dataset.outdates)?.remove());
  }
  for (const form of document.querySelectorAll("form[data-in-place]")) {
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      const place = document.getElementById(form.dataset.inPlace);
      const button = form.querySelector("button");
      button.disabled = true;
      try {
        const { page, address } = await load(form.action, { method: "POST", body: new URLSearchParams(new FormData(form)) });
        const result = page.getElementById("timeline");
        // The webhook was deleted meanwhile: its page says so.
        if (!result) return location.assign(address);
        localize(result);
        place.replaceChildren(document.adoptNode(result));
        place.dataset.liveFrom = address.split("#")[0];
      } catch (error) {
        // Only a page of the console says what is wrong. A lost connection says nothing that people understand.
        const problem = error instanceof TypeError ? "" : error.message;
        delete place.dataset.liveFrom;
        place.textContent = problem || "The test could not be sent. Try again in a few seconds.";
      }
      button.disabled = false;
    });
  }
  // A form that is sent twice in a hurry is sent once.
  document.addEventListener("submit", (event) => {
    if (event.defaultPrevented || event.target.method !== "post") return;
    if (event.target.dataset.sent) event.preventDefault();
    event.target.dataset.sent = "yes";
    event.target.querySelector("button")?.setAttribute("aria-busy", "true");
  });
  addEventListener("pageshow", () => {
    for (const form of document.querySelectorAll("form[data-sent]")) delete form.dataset.sent;
    for (const button of document.querySelectorAll("button[aria-busy]")) button.removeAttribute("aria-busy");
  });
}

// What was done is said once: a reload says it no more.
const address = new URL(location.href);
if (address.searchParams.has("done")) {
  address.searchParams.delete("done");
  history.replaceState(null, "", address);
}
localize(document);
useZone();
prepareCopies(document);
prepareForms();
setTimeout(follow, EVERY);
