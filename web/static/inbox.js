// inbox: requests that wait for a person, as cards and as a page each, and their answers.
import { ask, badge, button, calm, el, put, say, show, since, tried } from "./dom.js";
import { request as fetched } from "./sign-in.js";
import { block, diff, inline, prose, whole } from "./text.js";

const YES = ["proceed_once", "proceed_always_edits", "proceed_always", "proceed_always_tool", "proceed_always_server", "proceed_always_and_save"];

/** Tell this page, and other tabs, that something was decided. */
const tabs = new BroadcastChannel("interlock");
export function decided() {
  window.dispatchEvent(new Event("decided"));
  tabs.postMessage("decided");
}

const words = (way) => (way.covers ? `${way.label} ${way.covers}` : way.label);

async function decide(one, way, given = {}, card) {
  const buttons = card.querySelectorAll("button");
  buttons.forEach((b) => (b.disabled = true));
  await tried(async () => {
    await ask(`/api/runs/${one.run}/decide`, { decisions: [{ id: one.id, choice: way.choice, text: way.text || undefined, ...given }] });
    card.dataset.done = "1";
    say(`${words(way)}: ${one.asked.headline}`);
  });
  buttons.forEach((b) => (b.disabled = false));
  decided();
}

/** Open the field that an answer takes, below the buttons. */
function field(one, way, card) {
  const args = way.takes === "arguments";
  const name = { reason: "Reason (optional). The model reads it.", arguments: "Arguments, as JSON", text: "Your answer" }[way.takes];
  const input = el("textarea", { rows: args ? "8" : "2", required: way.takes === "text", spellcheck: !args, class: args ? "code" : "" });
  input.value = args ? JSON.stringify(one.fields.args, null, 2) : "";
  const hide = (is) => card.querySelectorAll(".ways, .more").forEach((one) => (one.hidden = is));
  const back = () => (form.remove(), hide(false), card.focus());
  const form = el("form", { class: "answer", onsubmit: (e) => {
    e.preventDefault();
    tried(() => decide(one, way, args ? { args: JSON.parse(input.value) } : { text: input.value }, card));
  }, onkeydown: (e) => e.key === "Escape" && back() }, el("label", {}, name, input),
    el("div", { class: "row" }, el("button", { class: "main" }, { reason: "Send", arguments: "Run it with these", text: "Answer" }[way.takes]), button("Back", back)));
  card.querySelector(".answer")?.remove();
  hide(true);
  card.append(form);
  input.focus();
}

/** The choices: at most four and the options of a question; the rest, and why it asks, behind "More". */
function waysOf(one, card) {
  const options = one.fields.kind === "question" && one.asked.questions.length === 1 ? one.asked.questions[0].options : [];
  const picked = options.map((o) => button(o.label, () => decide(one, { choice: "proceed_once", label: o.label }, { text: o.label }, card), { class: "main" }));
  const make = (way) => {
    const kind = way.choice === "proceed_once" && !picked.length ? "main" : way.choice === "reject" ? "no" : way.choice === "proceed_once" ? "" : "quiet";
    return button([el("span", {}, way.label, way.covers && [" ", el("span", { class: "covers" }, ticks(way.covers))]), way.key && el("kbd", { "aria-hidden": "true" }, way.key)],
      () => (way.takes ? field(one, way, card) : decide(one, way, {}, card)), { class: kind, "data-key": way.key, "aria-keyshortcuts": way.key });
  };
  const isExtra = (way) => way.is_extra && way.choice !== "modify";
  const group = (name, given) => el("div", { class: name, role: "group", "aria-label": name === "ways" ? "Decide" : "Other answers" }, given);
  const extra = one.asked.ways.filter(isExtra).map(make), more = [...details(one), extra.length ? group("others", extra) : null].filter(Boolean);
  return [one.asked.why && el("p", { class: "soft why" }, ticks(one.asked.why)), group("ways", [picked, one.asked.ways.filter((way) => !isExtra(way)).map(make)]),
    more.length ? el("details", { class: "more" }, el("summary", {}, "More choices and details", el("kbd", { "aria-hidden": "true" }, "?")), more) : null];
}

/** What would happen: the diff, plan or command. */
function wanted(one) {
  const { asked } = one;
  const parts = [];
  if (asked.preview) parts.push(asked.shows === "diff" ? diff(asked.preview) : asked.shows === "plan" ? prose(asked.preview) : block(asked.preview));
  if (asked.cut) parts.push(el("p", { class: "warn" }, `Only the first 101,000 of ${asked.cut.toLocaleString()} characters stand here. All: interlock approvals ${one.run}`));
  for (const { text, options } of asked.questions) {
    parts.push(el("p", { class: "question" }, text), options.some((o) => o.about)
      ? el("dl", { class: "facts" }, options.map((o) => [el("dt", {}, o.label), el("dd", {}, o.about)]))
      : asked.questions.length > 1 && options.length ? el("ul", {}, options.map((o) => el("li", {}, o.label))) : null); // of one, they are buttons
  }
  return parts;
}

const ticks = (text) => text.split("`").map((part, n) => (n % 2 ? el("code", {}, part) : part));
/** What to know before the action: that it is another one than before. */
const warning = (one) => one.asked.note && el("p", { class: "warn" }, one.asked.note);

/** The model's own reason, in its words. */
const purpose = (one) => one.asked.purpose && el("p", { class: "purpose" }, "The model says: ", one.asked.purpose);

function details(one) {
  const { asked } = one;
  return [asked.agent && el("p", { class: "soft" }, "For the sub-agent ", asked.agent),
    asked.parts.length ? el("ul", { class: "parts" }, asked.parts.map((part) => el("li", {}, el("code", {}, part.text), " ", el("span", { class: `verdict ${part.decision}` }, part.decision), " ", el("span", { class: "soft" }, ticks(part.reason))))) : null];
}

function shell(one, level) {
  return el("article", { class: "card request", tabindex: "-1", "data-id": one.id, "data-run": one.run, "aria-label": one.asked.headline },
    el(level, { class: "wants" }, one.asked.headline));
}

/** One request as a card with its ways to answer; `here`: among others of its run. */
export function card(one, here = false) {
  const made = shell(one, "h2");
  put(made, el("p", { class: "soft meta" }, here ? null : el("a", { class: "of", href: `/run/${one.run}` }, one.title || one.run), el("span", {}, "asked ", since(one.asked_at)),
    el("a", { href: `/request/${one.id}` }, "what led to it")), warning(one), wanted(one), purpose(one), waysOf(one, made));
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
    choose(cards, next);
    event.preventDefault();
  } else if (at >= 0) {
    const more = cards[at].querySelector(".more"), found = cards[at].querySelector(`[data-key="${CSS.escape(event.key)}"]`);
    if (event.key === "?" && more) (event.preventDefault(), (more.open = !more.open));
    else if (found && more?.contains(found) && !more.open) (event.preventDefault(), (more.open = true), found.focus());
    else if (found && found.offsetParent) (event.preventDefault(), found.click());
  }
}

function choose(cards, next) {
  cards.forEach((one) => one.classList.toggle("here", one === next));
  next?.focus({ preventScroll: true });
  next?.scrollIntoView({ block: "nearest" });
}

/** Keep `list` equal to what waits, without touching cards that stay; returns how many wait. */
export async function fill(list, run = "") {
  const waiting = await ask(`/api/requests${run ? `?run=${run}` : ""}`);
  const ids = new Set(waiting.map((one) => one.id));
  const cards = [...list.querySelectorAll(".request")];
  for (const [n, old] of cards.entries()) {
    if (ids.has(old.dataset.id)) continue;
    if (old.classList.contains("here")) choose(cards, cards.slice(n + 1).concat(cards.slice(0, n).reverse()).find((one) => ids.has(one.dataset.id)));
    if (!old.dataset.done && old.contains(document.activeElement)) say(`Decided elsewhere: ${old.getAttribute("aria-label")}`);
    old.remove();
  }
  for (const one of waiting) if (!list.querySelector(`[data-id="${CSS.escape(one.id)}"]`)) list.append(card(one, Boolean(run)));
  const batch = waiting.filter((one) => YES.some((c) => one.fields.choices.includes(c)) && one.fields.kind === "approval");
  list.querySelector(".all")?.remove();
  if (run && batch.length > 1) list.prepend(el("p", { class: "all" }, button(`Yes to all ${batch.length}`, () => tried(async () => {
    await ask(`/api/runs/${run}/decide`, { decisions: batch.map((one) => ({ id: one.id, choice: "proceed_once" })) });
    decided();
  }))));
  return waiting.length;
}

/** The list of all that waits. */
export async function inbox(main, noticed) {
  document.title = "Inbox · Interlock";
  const list = el("div", { class: "narrow" }), none = el("p", { class: "empty" }, "Nothing waits for you.", el("br"), el("a", { href: "/start" }, "Start a run"), " or ", el("a", { href: "/all" }, "look at earlier ones"), ".");
  const look = calm(async () => {
    const count = await fill(list);
    none.hidden = count > 0;
    noticed(count);
  });
  const notify = "Notification" in window && Notification.permission === "default"
    ? button("Notify me when a run waits", async (e) => (await Notification.requestPermission()) && (e.target.hidden = true), { class: "quiet" }) : null;
  show(main, el("div", { class: "row spread narrow" }, el("h1", {}, "Inbox"), notify),
    el("p", { class: "soft keys narrow" }, "Keys: ", el("kbd", {}, "j"), " ", el("kbd", {}, "k"), " choose, ", el("kbd", {}, "y"), " yes, ", el("kbd", {}, "a"), " don't ask again, ", el("kbd", {}, "e"), " change it, ", el("kbd", {}, "n"), " no, ", el("kbd", {}, "?"), " more"), none, list);
  none.hidden = true;
  await look();
  return look;
}

/** One request: what was asked, what was done so far, what it wants, and the answer. */
export async function request(main, id) {
  const one = await ask(`/api/requests/${encodeURIComponent(id)}`);
  document.title = `${one.asked?.headline ?? "Decided"} · Interlock`;
  if (one.gone) {
    const stands = el("span"), then = el("p");
    const look = async (now) => {
      const rest = await ask("/api/requests"), next = rest.find((other) => other.run === one.run) ?? rest[0];
      show(stands, badge(now.status));
      if ((next?.id ?? "") === then.dataset.next) return; // it may have the focus
      then.dataset.next = next?.id ?? "";
      show(then, next ? el("a", { class: "button main", href: `/request/${next.id}` }, `Next: ${next.asked.headline}`) : "Nothing else waits for you.");
    };
    await look(one);
    show(main, el("div", { class: "narrow" }, el("h1", {}, "This is decided"), el("p", {}, one.gone), el("p", {}, "Run: ", el("a", { href: `/run/${one.run}` }, one.title || one.run), " ", stands), then));
    return calm(async () => main.contains(then) && look(await ask(`/api/requests/${encodeURIComponent(id)}`)));
  }
  const made = shell(one, "h1");
  const long = one.prompt.length > 280 ? el("details", {}, el("summary", {}, `${one.prompt.slice(0, 240)} …`), el("p", { class: "said-by-you" }, one.prompt)) : el("p", { class: "said-by-you" }, one.prompt);
  const edits = one.asked.shows === "diff" && one.fields.args.file_path;
  const file = edits && el("details", { class: "whole", ontoggle: (e) => e.target.open && e.target.childElementCount === 1 && tried(async () => {
    const answer = await fetched(`/api/requests/${encodeURIComponent(id)}/file`);
    const text = answer.ok ? await answer.text() : "";
    put(file, answer.ok ? whole(text, one.asked.preview) ?? block(text) : el("p", { class: "soft" }, (await answer.json()).detail));
  }) }, el("summary", {}, "Whole file"));
  put(made, el("section", { "aria-label": "What you asked" }, el("h2", {}, "You asked"), long),
    el("section", { "aria-label": "So far" }, el("h2", {}, "So far"), el("ul", { class: "sofar" }, one.so_far.map((line) => el("li", {}, inline(line))))),
    el("section", { "aria-label": "What it wants" }, el("h2", {}, "It wants"), warning(one), wanted(one), file, purpose(one)), waysOf(one, made));
  show(main, el("div", { class: "narrow" }, el("p", { class: "soft meta" }, el("a", { class: "of", href: `/run/${one.run}` }, one.title || one.run), el("span", {}, "asked ", since(one.asked_at))), made));
  made.classList.add("here");
  let decided = null;
  return calm(async () => {
    if (decided) return decided();
    const waiting = await ask(`/api/requests?run=${one.run}`);
    if (!waiting.some((other) => other.id === id) && main.contains(made)) decided = await request(main, id);
  });
}
