// talk: a run's conversation: events of its record once each, live pieces as drafts, and only a window of it drawn.
import { button, el, put, show, tried } from "./dom.js";
import { download } from "./sign-in.js";
import { block, diff, prose } from "./text.js";

const WINDOW = 80, MORE = 60;

export class Talk {
  constructor(run) {
    this.run = run;
    this.items = [];
    this.calls = new Map();
    this.limit = null;
    this.first = 0;
    this.list = el("div", { class: "talk" });
    this.earlier = button("Earlier", () => this.grow());
    this.top = el("p", { class: "earlier", hidden: true }, this.earlier);
    this.draft = el("div", { class: "said assistant draft", hidden: true });
    this.warnings = el("div", { role: "status" });
    this.place = el("section", { "aria-label": "Conversation" }, this.top, this.list, this.warnings, this.draft);
    this.heard = 0;
    new IntersectionObserver(([one]) => one.isIntersecting && this.grow(), { rootMargin: "600px" }).observe(this.top);
    this.reset();
  }
  /** A connection begins: pieces that it brings are those after the newest whole answer. */
  reset() {
    this.text = this.doing = "";
    this.final = false;
    this.owed = 0;
    this.draft.hidden = true;
  }
  /** Nothing drives the run: what was said is in its record. */
  over() {
    if (this.pending) this.flush();
    this.reset();
  }
  get end() { return this.limit === null ? this.items.length : Math.min(this.limit, this.items.length); }
  get live() { return this.limit === null; }

  hear(event) {
    (this.pending ??= []).push(event);
    if (!this.begun) return;
    this.due ??= requestAnimationFrame(() => this.flush());
    setTimeout(() => this.due && document.hidden && this.flush(), 200); // no frames are drawn in a hidden tab
  }
  /** The record is read as far as it goes: show its end. */
  begin() {
    if (this.begun) return;
    this.begun = true;
    if (this.pending) this.flush();
    if (this.first > 0) window.scrollTo(0, document.body.scrollHeight);
  }
  flush() {
    cancelAnimationFrame(this.due);
    const near = this.isNear(), events = this.pending;
    this.due = this.pending = undefined;
    for (const event of events) event.live ? this.piece(event) : this.record(event);
    const shown = this.text || this.doing;
    if (shown && this.live) ((this.draft.hidden = false), (this.draft.textContent = ""), put(this.draft, shown.slice(-20000)));
    else this.draft.hidden = true;
    if (this.live) this.drawn();
    if (near && this.live) this.down();
  }
  isNear() { return window.innerHeight + window.scrollY > document.body.scrollHeight - 200; }
  down() { if (this.follows?.()) window.scrollTo(0, document.body.scrollHeight); }

  piece(event) {
    if (event.agent) return;
    if (event.type === "error") {
      if (![...this.warnings.children].some((one) => one.textContent === event.message)) this.warnings.append(el("p", { class: "warn" }, event.message));
    } else if (event.type === "progress") {
      this.doing = !event.total ? event.what.replace(/:$/, "") : event.done < event.total ? `${event.what} ${event.done.toLocaleString()} of ${event.total.toLocaleString()} ${event.unit}` : "";
    } else if (event.type === "message" && event.delta) {
      if (this.final) ((this.text = ""), (this.final = false));
      this.text += event.content;
    } else if (event.type === "message" && event.role === "assistant") {
      if (this.owed > 0) ((this.owed -= 1), (this.text = ""));
      else this.final = true;
    } else if (event.type === "tool_output") {
      const item = this.calls.get(event.tool_id);
      if (!item || item.result) return;
      item.live = ((item.live ?? "") + event.text).slice(-20000);
      if (item.out) ((item.out.textContent = ""), put(item.out, item.live));
    }
  }
  record(event) {
    if (event.type === "tool_result") {
      const item = this.calls.get(event.tool_id);
      if (!item) return;
      item.result = event;
      if (item.node) item.node.replaceWith((item.node = this.draw(item)));
      return;
    }
    if (event.type === "message" && event.role === "assistant") {
      if (this.final) ((this.text = ""), (this.final = false));
      else if (this.text) ((this.text = ""), (this.owed += 1));
    }
    const item = { event };
    if (event.type === "tool_use") this.calls.set(event.tool_id, item);
    this.items.push(item);
  }

  /** Draw what came, and let go of what is far above. */
  drawn() {
    const drawn = this.items.slice(this.first).findIndex((item) => !item.node);
    if (drawn >= 0) {
      const from = Math.max(this.first + drawn, this.end - WINDOW);
      if (from > this.first + drawn) this.window(from);
      this.list.append(...this.items.slice(from, this.end).map((item) => (item.node = this.draw(item))));
    }
    if (this.end - this.first > WINDOW + 2 * MORE && this.isNear()) this.window(this.end - WINDOW);
    this.said();
  }
  window(first) {
    for (const item of this.items.slice(this.first, first)) (item.node?.remove(), (item.node = null));
    this.first = first;
  }
  said() {
    this.top.hidden = this.first === 0;
    this.earlier.textContent = `Earlier (${this.first})`;
  }
  grow() {
    if (this.first === 0) return;
    const from = Math.max(0, this.first - MORE), before = document.documentElement.scrollHeight, at = window.scrollY;
    this.list.prepend(...this.items.slice(from, this.first).map((item) => (item.node = this.draw(item))));
    this.first = from;
    this.said();
    window.scrollTo(0, at + document.documentElement.scrollHeight - before);
  }
  /** Show the conversation as it was when it had so many events; null: as it is. */
  until(limit, open = []) {
    this.limit = limit;
    this.open = new Set(open);
    for (const item of this.items) item.node = null;
    this.first = Math.max(0, this.end - WINDOW);
    show(this.list, this.items.slice(this.first, this.end).map((item) => (item.node = this.draw(item))));
    this.draft.hidden = !this.live || !(this.text || this.doing);
    this.said();
  }

  draw(item) {
    const { event } = item;
    if (event.type === "thought") return el("details", { class: "said thought" }, el("summary", {}, "Thought"), prose(event.content));
    if (event.type === "tool_use") return this.call(item);
    const cut = event.cut ? el("p", { class: "soft" }, `Cut: ${event.cut.toLocaleString()} characters. Export the run to see all.`) : null;
    return el("div", { class: `said ${event.role}` }, event.role === "user" ? el("div", { class: "said-by-you" }, event.content) : prose(event.content), cut);
  }
  call(item) {
    const { event, result } = item, ended = result && !this.open?.has(event.tool_id);
    const failed = ended && (result.status !== "success" || result.exit);
    const state = el("span", { class: `state ${ended ? (failed ? "failed" : "done") : "open"}` }, ended ? result.exit || (failed ? result.status : "done") : "…");
    const body = el("div", {});
    const made = el("details", { class: `said tool ${failed ? "bad" : ""}` }, el("summary", {}, el("span", { class: "what" }, event.summary || event.tool_name), " ", state), body);
    made.addEventListener("toggle", () => made.open && show(body, this.inside(item, ended)));
    if (ended && result.diff) ((made.open = true), show(body, this.inside(item, ended)));
    return made;
  }
  inside(item, ended) {
    const { event, result } = item;
    if (!ended) return [this.given(event), (item.out = el("pre", { tabindex: "0", class: "out" }, item.live ?? ""))];
    if (result.diff) return diff(result.diff);
    const text = result.output || result.error?.message || "(no output)";
    return [this.given(event), block(text), result.cut ? el("p", {}, button(`All ${result.cut.toLocaleString()} characters, as a file`, () => tried(() => download(`/api/runs/${this.run}/calls/${encodeURIComponent(event.tool_id)}/output`, "output.txt")))) : null];
  }
  given(event) {
    const text = typeof event.parameters === "string" ? event.parameters : JSON.stringify(event.parameters, null, 2);
    return text === "{}" ? null : block(text, "given");
  }
}
