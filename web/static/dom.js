// dom: elements from text that may be hostile, and requests to the server.
import { request } from "./sign-in.js";

const DECEIVING = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\u{e0000}-\u{e007f}]/gu;

/** Text with what a reader would not see written out. */
export const shown = (text) =>
  String(text ?? "").replace(DECEIVING, (c) => `⟨U+${c.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`);

/** An element. Strings among `inside` are text, never markup. */
export function el(name, given = {}, ...inside) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(given)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value === true) made.setAttribute(key, "");
    else if (value !== false && value != null) made.setAttribute(key, shown(value));
  }
  put(made, inside);
  return made;
}

/** Append elements and texts; null and false are left out. */
export function put(place, ...inside) {
  place.append(...inside.flat(9).filter((one) => one != null && one !== false).map((one) => (one instanceof Node ? one : shown(one))));
  return place;
}

/** Show these in `place` instead of what is there. */
export const show = (place, ...inside) => (place.replaceChildren(), put(place, inside));

export const button = (label, onclick, given = {}) => el("button", { type: "button", onclick, ...given }, label);

const status = document.getElementById("said");
let hiding;
/** Tell the person something. */
export function say(text) {
  status.textContent = shown(text);
  clearTimeout(hiding);
  hiding = setTimeout(() => (status.textContent = ""), 6000);
}

/** JSON from the server; throws with its `detail`. A GET is tried again for as long as the server is away. */
export async function ask(path, body) {
  const given = body === undefined ? {} : { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) };
  const [answer, text] = await reached(path, given);
  let made = { detail: answer.statusText };
  try { made = JSON.parse(text); } catch { if (answer.ok) throw new Error("The server's answer is malformed."); }
  if (!answer.ok) throw Object.assign(new Error(made.detail ?? "The server failed."), { status: answer.status });
  return made;
}

async function reached(path, given) {
  for (;;) {
    try {
      const answer = await request(path, given);
      return [answer, await answer.text()];
    } catch {
      if (given.method) throw new Error("The server is away, and may not have got this. Look again when it is back.");
      await new Promise((go) => setTimeout(go, 500));
    }
  }
}

/** Run `work` and tell the person if it fails. */
export async function tried(work, told = say) {
  try {
    return await work();
  } catch (error) {
    told(error.message);
  }
}

/** Calls `work` at once, and again after calls that came meanwhile, never twice at a time nor more often than `ms`. */
export function calm(work, ms = 100) {
  let busy = false, again = false;
  return async function calmed() {
    if (busy) return void (again = true);
    busy = true;
    await tried(work);
    await new Promise((go) => setTimeout(go, ms));
    busy = false;
    if (again) ((again = false), calmed());
  };
}

export const ago = (at) => {
  const s = Math.max(0, Date.now() / 1000 - at);
  return s < 90 ? `${Math.round(s)} s ago` : s < 5400 ? `${Math.round(s / 60)} min ago` : s < 129600 ? `${Math.round(s / 3600)} h ago` : new Date(at * 1000).toLocaleDateString();
};

/** A moment, with how long ago it was, kept right by `page.js`. */
export const since = (at) => el("time", { datetime: new Date(at * 1000).toISOString(), title: new Date(at * 1000).toLocaleString(), "data-at": at }, ago(at));

/** A run's status, with a dot. */
export const badge = (status, words = status) => el("span", { class: `badge ${status}` }, words);

/** What the badge of a run shows: one that crashed or failed isn't grey. */
export const standing = (row) => (row.error && row.status === "interrupted" ? ["failed", `${row.status}: ${row.error.type}`] : [row.status, row.status]);

export const heads = (...names) => el("thead", {}, el("tr", {}, names.map((name) => el("th", { scope: "col" }, name))));
