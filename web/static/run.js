// run: one run, live: its map, slider and conversation move together; and what a person can do with it.
import { ask, badge, button, calm, el, heads, put, say, show, since, standing, tried } from "./dom.js";
import { fill } from "./inbox.js";
import { GraphMap } from "./map.js";
import { download, follow } from "./sign-in.js";
import { Talk } from "./talk.js";
import { block, diff } from "./text.js";

const LIST = 200;
const seconds = (ms) => (ms < 1000 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(1)} s`);

class RunPage {
  constructor(main, id, row) {
    Object.assign(this, { main, id, row, at: null, chosen: "", steps: [], deep: [], panel: "timeline", cursor: "" });
    this.talk = new Talk(id);
    this.talk.follows = () => this.row.status === "running" || this.sent;
    this.map = new GraphMap(`/api/runs/${id}/diagram`, (name) => this.pick(name), "Map of the run");
    this.about = el("p", { class: "about" });
    this.trouble = el("div", { role: "status" });
    this.waiting = el("section", { "aria-label": "Requests", class: "requests" });
    this.look = calm(() => this.refresh(), 150);
    this.open();
  }

  /** The frame of the page. */
  open() {
    this.slide = el("input", { type: "range", min: "0", value: "0", "aria-label": "Step shown", oninput: () => this.slid() });
    this.where = el("output", { class: "where" });
    this.chip = el("p", { class: "chip", hidden: true });
    this.travel = el("div", { class: "row travel", hidden: true });
    this.tabs = el("div", { class: "tabs", role: "tablist", "aria-label": "Details" }, ["timeline", "calls", "state", "files", "replay"].map((name) =>
      button(name, () => this.turn(name), { role: "tab", id: `tab-${name}`, "aria-controls": "panel", "aria-selected": name === this.panel ? "true" : "false", tabindex: name === this.panel ? "0" : "-1" })));
    this.tabs.addEventListener("keydown", (e) => {
      const all = [...this.tabs.children], to = { ArrowRight: 1, ArrowLeft: -1 }[e.key];
      if (to) (e.preventDefault(), all.at((all.indexOf(document.activeElement) + to) % all.length).focus(), document.activeElement.click());
    });
    this.body = el("div", { id: "panel", role: "tabpanel", tabindex: "0", "aria-labelledby": "tab-timeline" });
    const wide = matchMedia("(min-width: 1000px)");
    this.side = el("details", { class: "side", open: wide.matches }, el("summary", {}, "Map, steps, calls, state, files"),
      el("div", { class: "panes" }, el("div", {}, this.map.place, el("div", { class: "slider" }, this.slide, this.where, this.travel), this.chip), el("div", { class: "details" }, this.tabs, this.body)));
    wide.addEventListener("change", () => (this.side.open = wide.matches));
    this.side.addEventListener("toggle", () => this.side.open && this.mapped());
    show(this.main, el("h1", { class: "title" }, this.row.title || this.id), this.about, this.trouble,
      el("div", { class: "two" }, this.side, el("div", { class: "stream" }, this.past(), this.talk.place, this.waiting, this.composer())));
    this.facts();
    if (this.side.open) this.mapped();
  }
  past() {
    this.then = el("p", { class: "then", hidden: true }, "This is an earlier step. ", button("Back to now", () => this.now()));
    return this.then;
  }
  mapped() {
    if (this.drawn) return;
    this.drawn = true;
    this.map.load();
    this.marked();
  }

  facts() {
    const { row } = this, costs = Object.values(row.costs);
    const usd = costs.reduce((sum, c) => sum + (c.cost_usd ?? c.usd ?? 0), 0), tokens = row.tokens.toLocaleString();
    const { trouble } = row;
    show(this.trouble, trouble && el("section", { class: "warn trouble", "aria-label": trouble.headline }, el("strong", {}, trouble.headline), el("p", {}, trouble.what),
      trouble.where && el("p", {}, "Where: ", el("code", {}, trouble.where)), el("p", {}, trouble.advice)));
    show(this.about, badge(...standing(row)), el("span", {}, row.workflow), el("span", {}, `${tokens} tokens${usd ? `, $${usd.toFixed(4)}` : ""}`), el("span", {}, "changed ", since(row.updated)),
      el("span", { class: "place" }, row.workspace), row.parent && el("a", { href: `/run/${row.parent}` }, row.subtask ? "its task" : "forked from"), !trouble && row.error && el("span", { class: "bad" }, row.error.message), row.no_worker && el("span", { class: "bad" }, row.no_worker));
    this.stop.hidden = !["running", "queued", "waiting"].includes(row.status) && row.error?.type !== "limit";
    this.stop.textContent = row.status === "waiting" ? "Cancel the run" : "Stop";
    this.resume.hidden = row.status !== "interrupted";
    document.title = `${row.status === "waiting" ? "⏸ " : ""}${row.title || this.id} · Interlock`;
  }

  composer() {
    const run = this.id;
    this.stop = button("Stop", () => this.act("stop"), { class: "acts" });
    this.resume = button("Resume", () => this.act("prompt"), { class: "acts" });
    const input = el("textarea", { rows: "2", hidden: true, "aria-label": "Prompt", placeholder: "Tell the agent what to do next", onkeydown: (e) => e.key === "Enter" && (e.ctrlKey || e.metaKey) && form.requestSubmit() });
    const send = el("button", { class: "main", hidden: true }, "Send");
    ask(`/api/runs/${run}/prompt`).then(({ takes }) => (input.hidden = send.hidden = !takes), () => {}); // what can't be loaded takes none
    const form = el("form", { class: "composer", onsubmit: (e) => {
      e.preventDefault();
      if (input.value.trim()) tried(async () => ((this.sent = true), await ask(`/api/runs/${run}/prompt`, { prompt: input.value }), (input.value = "")));
    } }, input, el("div", { class: "row" }, send, this.stop, this.resume, el("details", { class: "menu" }, el("summary", {}, "More"), el("div", { class: "row" },
      button("Fork", () => this.act("fork"), { class: "acts" }), button("Undo changes", () => this.act("undo"), { class: "acts" }), ["html", "md", "json"].map((shape) => button(`Export ${shape}`, () => tried(() => download(`/api/runs/${run}/export?format=${shape}`, `run-${run}.${shape}`))))))));
    return form;
  }
  act(name, body = {}) {
    return tried(async () => {
      const made = await ask(`/api/runs/${this.id}/${name}`, body);
      if (made.run && made.run !== this.id) return void window.dispatchEvent(new CustomEvent("go", { detail: `/run/${made.run}` }));
      if (made.changed) say(made.changed.length ? `Undone: ${made.changed.map((c) => c.path).join(", ")}` : "Nothing to undo: the files are as they were.");
      this.look();
    });
  }

  /** What the server knows now. */
  async refresh() {
    const row = await ask(`/api/runs/${this.id}`);
    this.row = row;
    this.facts();
    await Promise.all([fill(this.waiting, this.id), this.more()]);
    this.marked();
    if (this.panel === "timeline" || (this.panel === "calls" && this.side.open)) await this.fillPanel();
  }
  async more() {
    const from = (list) => (list.length ? list.at(-1).seq + 1 : 0);
    this.steps.push(...(await ask(`/api/runs/${this.id}/steps?since=${from(this.steps)}`)));
    if (this.map.deep) this.deep.push(...(await ask(`/api/runs/${this.id}/steps?deep=1&since=${from(this.deep)}`)));
    this.saved = this.steps.filter((s, n) => this.steps[n + 1]?.step !== s.step);
    this.slide.max = this.saved.length;
    if (this.at === null) this.slide.value = this.saved.length;
    this.told();
  }
  told() {
    const last = this.saved?.length ?? 0, at = this.at === null ? null : this.saved[this.slide.value];
    this.where.textContent = at ? `Step ${at.step} of ${this.saved.at(-1).step}: ${at.place}` : last ? `Now, after step ${this.saved.at(-1).step}` : "No step yet";
    this.slide.setAttribute("aria-valuetext", this.where.textContent);
  }

  /** What the map shows: the way up to the step that is shown, and where the run is or was. The server finds it. */
  async marked() {
    this.map.mark({ chosen: this.chosen, status: this.at === null ? this.row.status : "shown" });
    if (!this.drawn) return;
    const at = this.at, levels = this.map.levels.value;
    const path = await ask(`/api/runs/${this.id}/path?${this.map.key}${at === null ? "" : `&step=${at}`}`).catch(() => null); // the map says why it isn't drawn
    if (!path || at !== this.at || levels !== this.map.levels.value) return;
    if (at === null && this.node && this.row.status === "running" && !path.here.length) path.here = [this.node];
    this.map.mark(path);
  }

  /** The slider moved: conversation, state, files and map follow. */
  slid() {
    if (Number(this.slide.value) >= this.saved.length) return this.now();
    this.at = this.saved[this.slide.value].step;
    this.told();
    this.marked();
    clearTimeout(this.sliding);
    this.sliding = setTimeout(() => tried(() => this.then_()), 90);
  }
  async then_() {
    const at = this.at;
    this.then.hidden = false;
    show(this.travel, button("Fork from here", () => this.act("fork", { step: at }), { class: "acts" }), button("Rewind to here", () => this.rewind(at), { class: "acts" }), button("Back to now", () => this.now()));
    this.travel.hidden = false;
    const seen = await ask(`/api/runs/${this.id}/seen?step=${at}`);
    if (this.at !== at) return;
    this.talk.until(seen.events, seen.open);
    this.waiting.hidden = true;
    await this.fillPanel();
  }
  now() {
    clearTimeout(this.sliding);
    this.at = null;
    this.slide.value = this.saved.length;
    this.then.hidden = this.travel.hidden = true;
    this.waiting.hidden = false;
    this.talk.until(null);
    this.told();
    this.marked();
    tried(() => this.fillPanel());
  }
  go(step) {
    this.slide.value = this.saved.findIndex((s) => s.step === step);
    this.slid();
  }
  rewind(step) {
    return tried(async () => {
      const { changes } = await ask(`/api/runs/${this.id}/rewind`, { step });
      const words = { A: "added again", M: "as before", D: "gone again" };
      show(this.travel, el("p", {}, changes.length ? "Rewinding changes these files:" : "Rewinding changes no file."), el("ul", {}, changes.map((c) => el("li", {}, el("code", {}, c.path), `: ${words[c.mark]}`))),
        button("Rewind", () => this.act("rewind", { step, sure: true }), { class: "main" }), button("Don't", () => this.then_()));
    });
  }

  /** A node chosen on the map filters timeline, calls and state. */
  pick(name) {
    this.chosen = this.chosen === name ? "" : name;
    this.chip.hidden = !this.chosen;
    if (this.chosen) show(this.chip, "Only ", el("code", {}, this.chosen), " ", button("Show all", () => (this.pick(this.chosen), this.slide.focus())));
    this.marked();
    tried(() => this.fillPanel());
  }
  get rows() {
    const all = this.chosen.includes(".") ? this.deep : this.steps;
    return all.filter((s) => (!this.chosen || s.place === this.chosen) && (this.at === null || s.step <= this.at));
  }

  turn(name) {
    this.panel = name;
    for (const tab of this.tabs.children) {
      const is = tab.id === `tab-${name}`;
      tab.setAttribute("aria-selected", is);
      tab.tabIndex = is ? 0 : -1;
    }
    this.body.setAttribute("aria-labelledby", `tab-${name}`);
    show(this.body, el("p", { class: "soft" }, "Loading …"));
    return tried(() => this.fillPanel());
  }
  async fillPanel() {
    const name = this.panel, made = await this[name]();
    if (name === this.panel && made) show(this.body, made);
  }

  async timeline() {
    const rows = this.rows, last = rows.slice(-LIST);
    if (!rows.length) return el("p", { class: "soft" }, this.chosen ? `${this.chosen} didn't run${this.at === null ? "" : " by this step"}.` : "No step yet.");
    const focus = this.body.contains(document.activeElement) && document.activeElement.dataset.step;
    const table = el("table", { class: "steps" }, heads("Step", "Node", "Time", "Why"), el("tbody", {}, last.reverse().map((s) => el("tr", { class: s.step === this.at ? "here" : "" },
      el("td", {}, button(s.step, () => this.go(s.step), { class: "quiet", "data-step": s.step, "aria-label": `Go to step ${s.step}` })), el("td", {}, s.place), el("td", { class: "number" }, seconds(s.ms)),
      el("td", {}, s.route && el("span", { class: "route" }, s.route), s.reason && el("span", { class: "soft" }, s.reason),
        button("Fork from here", () => this.act("fork", { step: s.step }), { class: "quiet fork", "aria-label": `Fork from here, step ${s.step}` }))))));
    if (focus) queueMicrotask(() => this.body.querySelector(`[data-step="${focus}"]`)?.focus({ preventScroll: true }));
    return [rows.length > LIST ? el("p", { class: "soft" }, `The last ${LIST} of ${rows.length} steps`) : null, table];
  }
  async calls() {
    const made = await ask(`/api/runs/${this.id}/calls`), spans = this.rows.map((s) => [s.started, s.started + s.ms / 1000]);
    const last = this.at === null ? Infinity : Math.max(0, ...spans.map(([, end]) => end));
    const found = made.filter((c) => (!c.ended || c.ended <= last + 0.05) && (!this.chosen || spans.some(([a, b]) => c.started >= a - 0.05 && c.started <= b + 0.05)));
    if (!found.length) return el("p", { class: "soft" }, this.chosen ? `No call was made in ${this.chosen}.` : "No call yet.");
    return el("table", {}, heads("Call", "Result", "Who decided"), el("tbody", {}, found.slice(-LIST).reverse().map((c) => el("tr", {}, el("td", {}, el("code", {}, c.tool)), el("td", { class: c.failed ? "bad" : "" }, c.came_to), el("td", { class: "soft" }, c.who)))));
  }
  async state() {
    const row = this.chosen ? this.rows.at(-1) : null, step = row && !row.place.includes(".") ? row.step : this.at;
    const made = await ask(`/api/runs/${this.id}/state${step === null || step === undefined ? "" : `?step=${step}`}`);
    const only = row ? new Set(row.keys.split(",")) : null, keys = Object.keys(made.values).sort((a, b) => (b in made.changed) - (a in made.changed) || (a < b ? -1 : 1));
    const text = (value) => JSON.stringify(value, null, 1) ?? "nothing";
    return [el("p", { class: "soft" }, `State after step ${made.step}${only ? `, as ${this.chosen} wrote it` : ""}. What the step changed stands first.`),
      el("dl", { class: "state" }, keys.filter((key) => !only || only.has(key)).map((key) => [el("dt", { class: key in made.changed ? "changed" : "" }, key),
        el("dd", {}, key in made.changed ? el("del", {}, text(made.changed[key] ?? undefined).slice(0, 2000)) : null, block(text(made.values[key])))]))];
  }
  async files() {
    const made = await ask(`/api/runs/${this.id}/diff${this.at === null ? "" : `?step=${this.at}`}`);
    return made.diff ? diff(made.diff) : el("p", { class: "soft" }, made.why || "No file was changed by this step.");
  }
  async replay() {
    if (this.replayed) return this.replayed;
    const swap = el("input", { "aria-label": "Swap a node", placeholder: "NODE=FILE.py:FUNCTION (optional)", class: "code swap" });
    const go = button("Replay", () => tried(async () => {
      show(out, el("p", { class: "soft", role: "status" }, "Replaying from the record …"));
      const made = await ask(`/api/runs/${this.id}/replay`, { swap: swap.value }).catch((error) => (show(out, el("p", { class: "warn" }, error.message)), null));
      if (made) show(out, this.beside(made));
    }), { class: "main" });
    const out = el("div", {});
    return (this.replayed = el("div", {}, el("p", { class: "soft" }, "Runs the graph again with the recorded replies, results and decisions. Offline; no file is touched."), el("div", { class: "row" }, swap, go), out));
  }
  beside(made) {
    const parts = made.divergence, keys = (parts?.keys ?? []).filter((key) => !key.includes(":")), first = made.steps.findIndex((s) => !s.same), from = Math.max(0, (first < 0 ? made.steps.length : first) - 60);
    this.map.mark({ differs: first < 0 ? "" : (made.steps[first].recorded ?? made.steps[first].replayed).at(-1) ?? "" });
    const cell = (nodes) => el("td", {}, nodes ? nodes.join(", ") || "(input)" : "(ended)");
    return [el("p", { class: first < 0 ? "good" : "warn" }, first < 0 ? `No difference: ${made.steps.length} states are the same.` : `Step ${parts.step} is the first that differs${keys.length ? `, in ${keys.join(", ")}` : ""}.`),
      parts?.requests?.length ? el("p", {}, `Changed: ${parts.requests.join("; ")}`) : null, parts?.error && el("p", { class: "bad" }, `The replay ended with: ${parts.error.message}`),
      el("table", { class: "beside" }, heads("Step", "Original", "Replay"), el("tbody", {}, made.steps.slice(from, from + LIST).map((s, n) => el("tr", { class: from + n === first ? "differs" : s.same ? "" : "after" },
        el("td", {}, s.step, from + n === first ? el("strong", {}, " ≠ differs") : ""), cell(s.recorded), cell(s.replayed)))))];
  }

  /** Follow the run's events; goes on from the last place after a lost connection. */
  listen() {
    this.unfollow ??= follow(`/api/runs/${this.id}/events`, { opened: () => (this.talk.reset(), this.look()), heard: (data, id) => {
      const event = JSON.parse(data);
      if (id) this.cursor = id;
      if (event.live && event.type === "node_start") {
        if (!event.agent && event.workflow === this.row.workflow && this.at === null) ((this.node = event.node), (this.row.status = "running"), this.map.mark({ here: [event.node], status: "running" }));
      } else if (event.type === "standing") {
        this.talk.begin();
        if (event.status !== "running") (this.node = "", this.talk.over());
        this.look();
      } else {
        this.talk.hear(event);
        if (!event.live) this.look();
      }
    } }, this.cursor);
  }
  close() {
    this.unfollow?.();
    this.unfollow = null;
  }
}

/** Show a run in `main`; returns what looks again and what ends it. */
export async function run(main, id) {
  const page = new RunPage(main, id, await ask(`/api/runs/${encodeURIComponent(id)}`));
  page.look();
  page.listen();
  const seen = () => (document.hidden ? page.close() : page.listen()); // a browser has six connections for all its tabs
  document.addEventListener("visibilitychange", seen);
  page.map.levels.addEventListener("change", page.look);
  return { look: page.look, leave: () => (page.close(), document.removeEventListener("visibilitychange", seen)) };
}
