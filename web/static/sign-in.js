// sign-in: this tab's token: kept through reloads, shared with other tabs of the page, sent with each request.

const KEPT = "interlock-token", tabs = new BroadcastChannel("interlock-sign-in");
const kept = () => sessionStorage.getItem(KEPT);
export const isSignedIn = () => Boolean(kept());

/** Another program may have taken the port while the server was away: it is sent no token. */
let proven = true;
export const doubt = () => (proven = false);
const away = () => (doubt(), tabs.postMessage("away"));
window.addEventListener("pageshow", ({ persisted }) => persisted && doubt());

const bytes = (text) => new TextEncoder().encode(text);
const hex = (found) => Array.from(new Uint8Array(found), (one) => one.toString(16).padStart(2, "0")).join("");

/** Throws unless whatever answers at this address knows the token. */
async function prove() {
  const [, about, secret] = /^tab\.(.+)\.(\w+)$/.exec(kept()) ?? [], challenge = hex(crypto.getRandomValues(new Uint8Array(16)));
  const answer = await fetch("/proof", { method: "POST", body: JSON.stringify({ about, challenge }) });
  const key = await crypto.subtle.importKey("raw", bytes(secret), { name: "HMAC", hash: "SHA-256" }, false, ["sign"]);
  const { proof } = await answer.json(), right = hex(await crypto.subtle.sign("HMAC", key, bytes(challenge)));
  if (proof !== right) throw new TypeError("Another program answers at this address.");
  proven = true;
}

/** As `fetch`, with the token. A token that is refused is forgotten. */
export async function request(path, given = {}) {
  const token = kept();
  try {
    if (token && !proven) await prove();
    const headers = { ...given.headers, ...(token && { authorization: `Bearer ${token}` }) };
    const answer = await fetch(path, { ...given, headers });
    if (answer.status === 401 && token && kept() === token) {
      sessionStorage.removeItem(KEPT);
      window.dispatchEvent(new Event("signed out"));
    }
    return answer;
  } catch (error) {
    if (!given.signal?.aborted) away();
    throw error;
  }
}

tabs.onmessage = ({ data }) => {
  if (data === "away") doubt();
  else if (data === "wanted") isSignedIn() && prove().then(() => tabs.postMessage({ token: kept() }), doubt);
  else if (data.token && !isSignedIn()) {
    sessionStorage.setItem(KEPT, data.token);
    window.dispatchEvent(new Event("signed in"));
  }
};

/** Exchange the token of the address for one of this tab. */
export async function signIn(token) {
  const answer = await fetch("/login", { method: "POST", body: token }), made = await answer.json();
  if (!answer.ok) throw new Error(made.detail);
  sessionStorage.setItem(KEPT, made.token);
  tabs.postMessage(made);
}

/** Ask the other tabs; returns once one has answered, or after `ms`. */
export const askTabs = (ms = 400) => new Promise((go) => {
  window.addEventListener("signed in", go, { once: true });
  setTimeout(go, ms);
  tabs.postMessage("wanted");
});

/** Save an answer as a file. */
export async function download(path, name) {
  const answer = await request(path);
  if (!answer.ok) throw new Error((await answer.json()).detail);
  const link = Object.assign(document.createElement("a"), { href: URL.createObjectURL(await answer.blob()), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

const AGAIN_MS = 500;
/** Follow server-sent events, after a lost connection from the last id on. Returns what ends that.

 * `opened`: a connection stands; `heard`: an event's data and id; `lost`: none stands, or the status that refused it. */
export function follow(path, { opened = () => {}, heard, lost = () => {} }, last = "") {
  const end = new AbortController(), { signal } = end;
  const run = async () => {
    while (!signal.aborted) {
      let refused = 0;
      try {
        const answer = await request(path, { signal, headers: last && { "last-event-id": last } });
        refused = answer.ok ? 0 : answer.status;
        if (answer.ok) {
          opened();
          for await (const [data, id] of events(answer.body)) ((last = id || last), heard(data, id));
        }
      } catch {}
      if (signal.aborted) return;
      if (!refused) away();
      lost(refused);
      await new Promise((go) => setTimeout(go, AGAIN_MS));
      if (!isSignedIn()) return;
    }
  };
  run();
  return () => end.abort();
}

async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "", data = [], id = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      if (line.startsWith("data: ")) data.push(line.slice(6));
      else if (line.startsWith("id: ")) id = line.slice(4);
      else if (!line && data.length) (yield [data.join("\n"), id], (data = []), (id = ""));
    }
  }
}
