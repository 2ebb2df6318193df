// map: the drawing of a graph as a map: what was taken, what works or waits now, and nodes to choose.
import { button, el, show } from "./dom.js";
import { request } from "./sign-in.js";

const DRAWN = new Set(["svg", "g", "path", "polygon", "polyline", "ellipse", "text", "title"]);
const HIDDEN_GROUPS = "main";

/** The server's drawing, with nothing in it but shapes and text. */
async function drawing(path) {
  const answer = await request(path);
  if (!answer.ok) throw new Error((await answer.json()).detail);
  const svg = new DOMParser().parseFromString(await answer.text(), "image/svg+xml").documentElement;
  for (const one of [...svg.querySelectorAll("*")]) {
    if (!DRAWN.has(one.localName)) one.remove();
    for (const { name } of [...one.attributes]) if (/^on|href$|^style$/i.test(name)) one.removeAttribute(name);
  }
  svg.removeAttribute("style");
  return svg;
}

/** A graph in a box that scrolls; `address` makes the drawing's address of levels and groups. */
export class GraphMap {
  constructor(address, pick, label) {
    this.address = address;
    this.pick = pick;
    this.marks = { nodes: {}, edges: [], here: [], raised: [], status: "", chosen: "", differs: "" };
    this.box = el("div", { class: "map", tabindex: "0", role: "region", "aria-label": label });
    this.key = `depth=1&show=${HIDDEN_GROUPS}`;
    this.levels = el("select", { "aria-label": "Levels of the graph", onchange: () => this.load() }, [1, 2, 3].map((n) => el("option", { value: n }, n > 1 ? `${n} levels` : "1 level")));
    this.all = el("input", { type: "checkbox", onchange: () => this.load() });
    this.place = el("div", { class: "mapped" }, this.box, el("div", { class: "row tools" }, this.levels, el("label", { class: "check" }, this.all, "hooks, questions, errors"),
      el("span", { class: "zoom" }, button("−", () => this.zoom(1 / 1.25), { "aria-label": "Smaller" }), button("+", () => this.zoom(1.25), { "aria-label": "Larger" }), button("Fit", () => this.fit()))));
  }
  get deep() { return this.levels.value > 1; }

  async load() {
    this.key = `depth=${this.levels.value}&show=${this.all.checked ? "" : HIDDEN_GROUPS}`;
    const key = this.key;
    if (!this.svg) show(this.box, el("p", { class: "soft drawn" }, "Drawing the graph …"));
    let svg;
    try {
      svg = await drawing(`${this.address}?${key}`);
    } catch (error) {
      return void show(this.box, el("p", { class: "soft drawn" }, `This graph can't be drawn now: ${error.message}`));
    }
    if (key !== this.key) return;
    this.svg = svg;
    svg.setAttribute("role", "group");
    svg.setAttribute("aria-label", "Graph");
    this.width = svg.viewBox.baseVal.width * 1.15;
    this.nodes = new Map();
    this.revealed = null;
    for (const part of svg.querySelectorAll("g.node, g.edge, g.cluster")) if (/^(cluster_)?legend/.test(part.querySelector("title").textContent)) part.remove();
    for (const frame of svg.querySelectorAll("g.frame")) frame.setAttribute("class", "cluster"); // around a graph that is drawn open
    for (const node of svg.querySelectorAll("g.node:not(.label)")) this.node(node);
    for (const cluster of svg.querySelectorAll("g.cluster")) {
      const name = cluster.querySelector("title").textContent.replace(/^cluster_/, "");
      if (!this.nodes.has(name)) this.nodes.set(name, cluster);
    }
    this.edges = new Map([...svg.querySelectorAll("g.edge")].map((edge) => [edge.querySelector("title").textContent, edge]));
    svg.querySelectorAll("title").forEach((title) => title.remove());
    show(this.box, svg);
    this.zoomed = Math.max(0.72, Math.min(1.1, (this.box.clientWidth - 8) / this.width));
    this.sized();
    this.mark({});
  }

  node(node) {
    const name = node.querySelector("title")?.textContent ?? "";
    this.nodes.set(name, node);
    if (!this.pick || /(^|\.)__(start|end)__$/.test(name)) return;
    node.setAttribute("tabindex", "0");
    node.setAttribute("role", "button");
    node.setAttribute("aria-label", name);
    node.addEventListener("click", () => this.pick(name));
    node.addEventListener("keydown", (e) => (e.key === "Enter" || e.key === " ") && (e.preventDefault(), this.pick(name)));
  }
  sized() { this.svg.style.width = `${this.width * this.zoomed}px`; }
  zoom(by) {
    if (!this.svg) return;
    this.zoomed = Math.max(0.2, Math.min(3, this.zoomed * by));
    this.sized();
  }
  fit() {
    if (!this.svg) return;
    const { width, height } = this.svg.viewBox.baseVal;
    this.zoomed = Math.min((this.box.clientWidth - 8) / this.width, ((this.box.clientHeight - 8) * width) / height / this.width);
    this.sized();
  }

  /** Show how often nodes were entered, the edges taken, where the run is, what raised, what was chosen, what differs. */
  mark(marks) {
    Object.assign(this.marks, marks);
    if (!this.svg) return;
    const { nodes, edges, here, raised, status, chosen, differs } = this.marks, taking = Object.keys(nodes).length > 0;
    if (here.some((name) => !name.includes(".") && !this.nodes.has(name)) && !this.all.checked) return void ((this.all.checked = true), this.load());
    const drawn = here.filter((name) => this.nodes.has(name)), pairs = new Set(edges.map((pair) => pair.join(">")));
    const lit = new Set(drawn.filter((name) => !drawn.some((other) => other.startsWith(`${name}.`)))); // not the graphs around
    for (const [name, node] of this.nodes) {
      const count = nodes[name] ?? 0, is = lit.has(name), failed = raised.includes(name);
      node.classList.toggle("taken", count > 0);
      node.classList.toggle("untaken", taking && !count && !/(^|\.)__(start|end)__$/.test(name));
      node.classList.toggle("lit", is);
      node.classList.toggle("waits", is && status === "waiting");
      node.classList.toggle("works", is && status === "running");
      node.classList.toggle("raised", failed);
      node.classList.toggle("chosen", name === chosen);
      node.classList.toggle("differs", name === differs);
      if (node.getAttribute("role") === "button") {
        node.setAttribute("aria-pressed", name === chosen);
        node.setAttribute("aria-label", `${name}${count ? `, ${count} times` : ""}${is ? `, ${status}` : ""}${failed ? ", raised" : ""}${name === differs ? ", differs" : ""}`);
      }
    }
    const first = [...lit][0] ?? "";
    if (first !== this.revealed) ((this.revealed = first), this.reveal(first));
    for (const [title, edge] of this.edges) {
      const [from, to] = title.split("->"), [a, b] = (from.includes(" to ") ? from : to.includes(" to ") ? to : `${from} to ${to}`).split(" to ");
      edge.dataset.edge = `${a}>${b}`;
      edge.classList.toggle("taken", pairs.has(edge.dataset.edge));
    }
  }
  /** Scroll the box to a node. */
  reveal(name) {
    const node = this.nodes.get(name);
    if (!node) return;
    const at = node.getBoundingClientRect(), box = this.box.getBoundingClientRect();
    if (at.top > box.top && at.bottom < box.bottom && at.left > box.left && at.right < box.right) return;
    this.box.scrollBy({ top: at.top - box.top - box.height / 2 + at.height / 2, left: at.left - box.left - box.width / 2 + at.width / 2 });
  }
}
