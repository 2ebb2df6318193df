// inbox: requests that wait for a person, and their answers.
import { ago, ask, diff, el, say, tried } from "./dom.js";

const YES = ["proceed_once", "proceed_always_edits", "proceed_always", "proceed_always_tool", "proceed_always_server", "proceed_always_and_save"];

/** Send one answer; the request leaves the list by itself. */
async function decide(one, way, given = {}) {
  await tried(async () => {
    await ask(`/api/runs/${one.run}/decide`, { decisions: [{ id: one.id, choice: way.choice, text: way.text || undefined, ...given }] });
    say(`${way.label}: ${one.asked.headline}`);
  });
  window.dispatchEvent(new Event("decided"));
}

function answerOf(one, way, card) {
  if (!way.takes) return () => decide(one, way);
  return () => {
    const value = way.takes === "arguments" ? JSON.stringify(one.fields.args, null, 2) : "";
    const name = { reason: "Why not? (optional)", arguments: "Arguments (JSON)", text: "Your answer" }[way.takes];
    const field = el("textarea", { rows: value ? "8" : "2", "aria-label": name, required: way.takes !== "reason" }, value);
    const form = el("form", { class: "answer", onsubmit: (e) => {
      e.preventDefault();
      tried(() => decide(one, way, way.takes === "arguments" ? { args: JSON.parse(field.value) } : { text: field.value }));
    } }, el("label", {}, name, field), el("div", { class: "row" }, el("button", { class: "main" }, "Send"),
      el("button", { type: "button", onclick: () => (form.remove(), card.focus()) }, "Back")));
    card.querySelector(".answer")?.remove();
    card.append(form);
    field.focus();
  };
}

function about(one) {
  const { asked } = one;
  const parts = [el("p", { class: "soft" }, el("a", { href: `/run/${one.run}` }, one.title || one.run), ` · ${ago(one.asked_at)}`, asked.agent && ` · asked by ${asked.agent}`)];
  if (asked.why) parts.push(el("p", {}, `Why it asks: ${asked.why}`));
  if (asked.note) parts.push(el("p", { class: "waiting" }, asked.note));
  if (asked.preview) parts.push(asked.shows === "diff" ? diff(asked.preview) : el("pre", { tabindex: "0" }, asked.preview));
  for (const part of asked.parts) parts.push(el("p", {}, el("code", {}, part.text), `: ${part.decision}, ${part.reason}`));
  for (const question of asked.questions) {
    parts.push(el("p", {}, question.text), el("ul", {}, question.options.map((o) => el("li", {}, o.about ? `${o.label}: ${o.about}` : o.label))));
  }
  if (asked.always.length) parts.push(el("p", { class: "soft" }, `Always covers: ${asked.always.join("; ")}`));
  if (asked.saved) parts.push(el("p", { class: "soft" }, `Saved always covers: ${asked.saved}`));
  return parts;
}

/** One request as a card with its ways to answer. */
export function card(one) {
  const made = el("article", { class: "card request", tabindex: "-1", "data-id": one.id, "aria-label": one.asked.headline },
    el("h2", {}, one.asked.headline), about(one));
  const options = one.fields.kind === "question" && one.asked.questions.length === 1 ? one.asked.questions[0].options : [];
  const picked = options.map((o) => el("button", { onclick: () => decide(one, { choice: "proceed_once", label: o.label }, { text: o.label }) }, o.label));
  const ways = one.asked.ways.filter((way) => way.key || way.takes || way.choice === "cancel");
  made.append(el("div", { class: "row" }, picked, ways.map((way) =>
    el("button", { class: way.choice === "proceed_once" ? "main" : "", "data-key": way.key, onclick: answerOf(one, way, made) },
      way.label, way.key && " ", way.key && el("kbd", {}, way.key)))));
  return made;
}

/** Keys: j and k choose a request; its letters answer it. */
export function keys(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName)) return;
  const cards = [...document.querySelectorAll(".request")];
  if (!cards.length) return;
  const at = cards.findIndex((one) => one.classList.contains("here"));
  if (event.key === "j" || event.key === "k") {
    const next = cards[at < 0 ? 0 : Math.min(cards.length - 1, Math.max(0, at + (event.key === "j" ? 1 : -1)))];
    cards.forEach((one) => one.classList.toggle("here", one === next));
    next.focus();
    event.preventDefault();
  } else if (at >= 0) {
    const button = cards[at].querySelector(`[data-key="${CSS.escape(event.key)}"]`);
    if (button) (event.preventDefault(), button.click());
  }
}

/** Keep `list` equal to what waits, without touching cards that stay; returns how many wait. */
export async function fill(list, run = "") {
  const waiting = await ask(`/api/requests${run ? `?run=${run}` : ""}`);
  const ids = new Set(waiting.map((one) => one.id));
  for (const old of [...list.querySelectorAll(".request")]) if (!ids.has(old.dataset.id)) old.remove();
  for (const one of waiting) if (!list.querySelector(`[data-id="${CSS.escape(one.id)}"]`)) list.append(card(one));
  const batch = waiting.filter((one) => YES.some((c) => one.fields.choices.includes(c)) && one.fields.kind === "approval");
  list.querySelector(".all")?.remove();
  if (run && batch.length > 1) list.prepend(el("p", { class: "all" }, el("button", { onclick: () => tried(async () => {
    await ask(`/api/runs/${run}/decide`, { decisions: batch.map((one) => ({ id: one.id, choice: "proceed_once" })) });
    window.dispatchEvent(new Event("decided"));
  }) }, `Yes to all ${batch.length}`)));
  return waiting.length;
}
