// dom: elements from text that may be hostile, and requests to the server.

const DECEIVING = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\u{e0000}-\u{e007f}]/gu;

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
  made.append(...inside.flat().filter((one) => one != null).map((one) => (one instanceof Node ? one : shown(one))));
  return made;
}

const status = document.getElementById("said");
let hiding;
/** Tell the person something. */
export function say(text) {
  status.textContent = shown(text);
  clearTimeout(hiding);
  hiding = setTimeout(() => (status.textContent = ""), 6000);
}

/** JSON from the server; throws with its `detail`. */
export async function ask(path, body) {
  const given = body === undefined ? {} : { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) };
  const answer = await fetch(path, given);
  const made = await answer.json().catch(() => ({ detail: answer.statusText }));
  if (!answer.ok) throw Object.assign(new Error(made.detail ?? "The server failed."), { status: answer.status });
  return made;
}

/** Run `work` and tell the person if it fails. */
export async function tried(work) {
  try {
    return await work();
  } catch (error) {
    say(error.message);
  }
}

/** A unified diff with the numbers of its new lines. */
export function diff(text) {
  let number = 0;
  const lines = text.replace(/\n$/, "").split("\n").map((line) => {
    const hunk = /^@@ -\d+(?:,\d+)? \+(\d+)/.exec(line);
    if (hunk) number = Number(hunk[1]) - 1;
    const kind = /^(\+\+\+|---)/.test(line) ? "" : line[0] === "+" ? "add" : line[0] === "-" ? "gone" : "";
    const counts = !hunk && number >= 0 && line[0] !== "-" && !/^(\+\+\+|---|diff |index )/.test(line);
    if (counts) number += 1;
    return el("span", { class: kind }, el("b", { "aria-hidden": "true" }, counts && number ? String(number) : ""), line || " ");
  });
  return el("pre", { class: "diff", tabindex: "0" }, lines);
}

/** The server's drawing of a graph, as part of this page. */
export async function drawing(path, chosen) {
  const answer = await fetch(path);
  if (!answer.ok) return el("p", { class: "soft" }, "This graph can't be drawn now.");
  const svg = new DOMParser().parseFromString(await answer.text(), "image/svg+xml").documentElement;
  svg.querySelectorAll("script, foreignObject, style, a").forEach((one) => one.remove());
  svg.setAttribute("role", "group");
  svg.setAttribute("aria-label", "Graph of the workflow");
  for (const node of svg.querySelectorAll("g.node")) {
    const name = node.querySelector("title")?.textContent ?? "";
    node.dataset.node = name;
    if (!chosen || name.startsWith("__")) continue;
    node.setAttribute("tabindex", "0");
    node.setAttribute("role", "button");
    node.setAttribute("aria-label", name);
    node.addEventListener("click", () => chosen(name));
    node.addEventListener("keydown", (e) => (e.key === "Enter" || e.key === " ") && (e.preventDefault(), chosen(name)));
  }
  return el("div", { class: "map", tabindex: "0", role: "region", "aria-label": "Graph" }, svg);
}

export const ago = (at) => {
  const s = Math.max(0, Date.now() / 1000 - at);
  return s < 90 ? `${Math.round(s)} s ago` : s < 5400 ? `${Math.round(s / 60)} min ago` : s < 129600 ? `${Math.round(s / 3600)} h ago` : new Date(at * 1000).toLocaleDateString();
};
