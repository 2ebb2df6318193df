// run: one run, live: conversation, graph, steps, calls, files, and what a person can do with it.
import { ask, diff, drawing, el, say, tried } from "./dom.js";
import { fill } from "./inbox.js";

/** Shows a run's events; its record's have places and come once, live pieces are drafts until the record has them. */
class Conversation {
  constructor(place) {
    this.place = place;
    this.calls = new Map();
    this.reset();
  }
  reset() {
    this.draft?.remove();
    this.draft = null;
    this.final = false;
    this.owed = 0;
  }
  add(kind, ...inside) {
    const near = window.innerHeight + window.scrollY > document.body.scrollHeight - 160;
    const made = el("div", { class: `said ${kind}` }, inside);
    if (this.draft) this.draft.before(made);
    else this.place.append(made);
    if (near) window.scrollTo(0, document.body.scrollHeight);
    return made;
  }
  live(event) {
    if (event.agent) return;
    if (event.type === "message" && event.delta) {
      if (this.final) (this.draft?.remove(), (this.draft = null), (this.final = false));
      this.draft ??= this.add("assistant draft");
      this.draft.append(el("span", {}, event.content));
    } else if (event.type === "message" && event.role === "assistant") {
      if (this.owed > 0) ((this.owed -= 1), this.draft?.remove(), (this.draft = null));
      else this.final = true;
    } else if (event.type === "tool_output") {
      const there = this.calls.get(event.tool_id);
      if (there) there.out.textContent = (there.out.textContent + event.text).slice(-20000);
    }
  }
  record(event) {
    if (event.type === "message" && event.role === "assistant") {
      if (this.final) (this.draft?.remove(), (this.draft = null), (this.final = false));
      else if (this.draft) (this.draft.remove(), (this.draft = null), (this.owed += 1));
      this.add("assistant", event.content);
    } else if (event.type === "message") this.add("user", event.content);
    else if (event.type === "thought") this.add("thought", event.content);
    else if (event.type === "tool_use") {
      const out = el("pre", { tabindex: "0" });
      const state = el("span", { class: "soft" }, " …");
      this.calls.set(event.tool_id, { out, state, box: this.add("tool", el("details", {}, el("summary", {}, event.summary || event.tool_name, state),
        el("pre", { tabindex: "0" }, JSON.stringify(event.parameters, null, 2)), out)) });
    } else if (event.type === "tool_result") {
      const there = this.calls.get(event.tool_id);
      if (!there) return;
      there.state.className = event.status;
      there.state.textContent = ` ${event.exit || event.status}`;
      there.out.replaceWith(event.diff ? diff(event.diff) : el("pre", { tabindex: "0" }, (event.output || event.error?.message || "").slice(0, 200000)));
    }
  }
}

function facts(row) {
  const tokens = Object.values(row.costs).reduce((sum, c) => sum + (c.input ?? 0) + (c.output ?? 0), 0);
  const usd = Object.values(row.costs).reduce((sum, c) => sum + (c.cost_usd ?? c.usd ?? 0), 0);
  return [el("strong", { class: row.status }, row.status), ` · ${row.workflow} · ${row.steps} steps · ${(row.tokens || tokens).toLocaleString()} tokens`,
    usd ? ` · $${usd.toFixed(4)}` : "", ` · ${row.workspace}`];
}

function actions(run, reload) {
  const act = (name, body = {}) => () => tried(async () => {
    const made = await ask(`/api/runs/${run}/${name}`, body);
    if (made.run && made.run !== run) location.assign(`/run/${made.run}`);
    if (made.changed) say(`Undone: ${made.changed.map((c) => c.path).join(", ") || "nothing"}`);
    reload();
  });
  const field = el("textarea", { rows: "2", "aria-label": "Prompt", placeholder: "Prompt" });
  const send = (e) => { e.preventDefault(); act("prompt", { prompt: field.value })().then(() => (field.value = "")); };
  return el("form", { onsubmit: send }, field, el("div", { class: "row" }, el("button", { class: "main" }, "Send"),
    el("button", { type: "button", onclick: act("stop") }, "Stop"), el("button", { type: "button", onclick: act("fork") }, "Fork"),
    el("button", { type: "button", onclick: act("undo") }, "Undo changes")));
}

/** Steps with a slider; a node chosen on the map filters them. */
function timeline(run, chosen) {
  const list = el("div"), state = el("div"), slide = el("input", { type: "range", min: "0", "aria-label": "Step" });
  const show = (steps, step) => tried(async () => {
    const values = await ask(`/api/runs/${run}/state?step=${step}`);
    state.replaceChildren(el("div", { class: "row" }, el("strong", {}, `State after step ${step}`), el("button", { onclick: () => tried(async () => {
      location.assign(`/run/${(await ask(`/api/runs/${run}/fork`, { step })).run}`);
    }) }, "Fork from here")), el("pre", { tabindex: "0" }, JSON.stringify(values, null, 2)));
  });
  const fillSteps = (all) => {
    const steps = all.filter((s) => s.depth === 0 && !s.node.startsWith("__") && (!chosen.node || s.node === chosen.node));
    const saved = steps.filter((s) => s.saved);
    slide.max = Math.max(0, saved.length - 1);
    slide.oninput = () => saved[slide.value] && show(saved, saved[slide.value].step);
    list.replaceChildren(el("table", {}, el("thead", {}, el("tr", {}, ["Step", "Node", "ms", "Route"].map((h) => el("th", { scope: "col" }, h)))),
      el("tbody", {}, steps.slice(-300).map((s) => el("tr", {}, el("td", {}, s.saved ? el("button", { onclick: () => show(saved, s.step) }, s.step) : ""),
        el("td", {}, s.node), el("td", {}, Math.round(s.ms)), el("td", { title: s.reason }, s.route ?? ""))))));
  };
  return { place: el("section", { "aria-label": "Steps" }, el("h2", {}, "Steps"), slide, state, list), fillSteps };
}

async function calls(run, place) {
  const made = await ask(`/api/runs/${run}/calls`);
  place.replaceChildren(el("table", {}, el("thead", {}, el("tr", {}, ["Call", "Result", "Who decided"].map((h) => el("th", { scope: "col" }, h)))),
    el("tbody", {}, made.map((c) => el("tr", {}, el("td", {}, c.tool), el("td", { class: c.failed ? "error" : "" }, c.came_to), el("td", {}, c.who))))));
}

const lazily = (name, fill) => {
  const place = el("div");
  return el("details", { ontoggle: (e) => e.target.open && tried(() => fill(place)) }, el("summary", {}, name), place);
};

/** Show a run in `main`; returns what ends it. */
export async function run(main, id) {
  const row = await ask(`/api/runs/${id}`);
  document.title = `${row.title} · Interlock`;
  const about = el("p", {}, facts(row)), waiting = el("section", { "aria-label": "Requests" });
  const spoken = el("section", { "aria-label": "Conversation" }), chosen = { node: "" }, map = el("section", { "aria-label": "Map" });
  const steps = timeline(id, chosen), talk = new Conversation(spoken);
  let all = [], node = row.node, status = row.status;
  const light = () => map.querySelectorAll(".node").forEach((n) => {
    n.classList.toggle("lit", (status === "running" || status === "waiting") && n.dataset.node === node);
    n.classList.toggle("chosen", n.dataset.node === chosen.node);
  });
  const pick = (name) => { chosen.node = chosen.node === name ? "" : name; steps.fillSteps(all); light(); };
  let drawn = "";
  const look = async () => {
    const now = await ask(`/api/runs/${id}`);
    ({ status } = now);
    node = now.status === "running" && node ? node : now.node;
    about.replaceChildren(...el("p", {}, facts(now)).childNodes);
    await fill(waiting, id);
    all = await ask(`/api/runs/${id}/steps`);
    steps.fillSteps(all);
    if (drawn !== `${now.status} ${now.steps}`) {
      map.replaceChildren(await drawing(`/api/runs/${id}/diagram`, pick));
      drawn = `${now.status} ${now.steps}`;
    }
    light();
  };
  let due;
  const soon = () => (due ??= setTimeout(() => ((due = undefined), tried(look)), 250));
  main.replaceChildren(el("h1", {}, row.title || id), about, el("div", { class: "two" },
    el("div", {}, spoken, waiting, actions(id, soon)),
    el("div", {}, map, steps.place, lazily("Calls", (p) => calls(id, p)),
      lazily("Files changed", async (p) => p.replaceChildren(diff((await ask(`/api/runs/${id}/diff`)).diff))))));
  const source = new EventSource(`/api/runs/${id}/events`);
  source.onopen = () => talk.reset();
  source.onmessage = ({ data }) => {
    const event = JSON.parse(data);
    if (event.live && event.type === "node_start" && !event.agent) {
      if (event.workflow === row.workflow) ((node = event.node), (status = "running"), light());
    } else if (event.live) talk.live(event);
    else if (event.type === "standing") soon();
    else (talk.record(event), soon());
  };
  window.addEventListener("decided", soon);
  return () => (source.close(), window.removeEventListener("decided", soon));
}
