// stats: what runs did and cost in the last 30 days, as bars and a table.
import { ask, el, heads, show, shown } from "./dom.js";

const WIDTH = 960, HEIGHT = 180;

function drawn(name, given, ...inside) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(given)) made.setAttribute(key, value);
  made.append(...inside);
  return made;
}

function chart({ what, most, bars }) {
  const step = WIDTH / Math.max(bars.length, 12), [first, last] = [bars[0].key, bars.at(-1).key];
  const svg = drawn("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": what }, ...bars.map(({ key, part, shown: text }, n) =>
    drawn("rect", { x: n * step + step * 0.1, y: HEIGHT * (1 - part), width: Math.max(step * 0.8, 1), height: HEIGHT * part, fill: "currentColor" }, drawn("title", {}, shown(`${key}: ${text}`)))));
  return el("figure", {}, svg, el("figcaption", { class: "soft" }, `${what}, ${first === last ? first : `${first} to ${last}`}; at most ${most}`));
}

export async function stats(main) {
  document.title = "Stats · Interlock";
  const by = new URLSearchParams(location.search).get("by") ?? "day", made = await ask(`/api/stats?by=${encodeURIComponent(by)}`);
  const ways = made.keys.flatMap((key) => [" ", key === made.by ? el("b", {}, key) : el("a", { href: `/stats?by=${key}` }, key)]);
  show(main, el("h1", { class: "stats" }, "Stats"), el("nav", { "aria-label": "Group by", class: "row" }, "The last 30 days by", ways), made.chart.bars.length ? chart(made.chart) : null,
    made.rows.length ? el("div", { class: "across", tabindex: "0", role: "region", "aria-label": "Table" }, el("table", {}, heads(...made.columns), el("tbody", {}, made.rows.map((row) => el("tr", {}, row.map((cell) => el("td", {}, cell)))))))
      : el("p", { class: "soft" }, "No runs in this time."));
}
