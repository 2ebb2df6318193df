// page: signs in, shows the page that the address names, and keeps the list of requests fresh.
import { ago, ask, drawing, el, say, shown, tried } from "./dom.js";
import { fill, keys } from "./inbox.js";
import { run } from "./run.js";

const main = document.getElementById("main");
let leave = () => {};
const every = (ms, work) => {
  const timer = setInterval(() => document.visibilityState === "visible" && work().catch(() => {}), ms);
  return () => clearInterval(timer);
};

async function inbox() {
  document.title = "Inbox · Interlock";
  const list = el("div"), none = el("p", { class: "soft" }, "Nothing waits for you.");
  const look = async () => {
    const count = await fill(list);
    none.hidden = count > 0;
    notify(count);
  };
  const ask_ = "Notification" in window && Notification.permission === "default"
    ? el("button", { onclick: () => Notification.requestPermission() }, "Notify me when a run waits") : null;
  main.replaceChildren(el("h1", {}, "Inbox"), el("p", { class: "soft wide" }, "Keys: j and k choose, y yes, a always, e edit, n no."), ask_, none, list);
  await look();
  const again = () => tried(look);
  window.addEventListener("decided", again);
  const stop = every(1000, look);
  return () => (stop(), window.removeEventListener("decided", again));
}

let told = 0;
function notify(count) {
  document.getElementById("waiting").textContent = count ? `(${count})` : "";
  if (count > told && "Notification" in window && Notification.permission === "granted" && document.hidden) {
    new Notification("Interlock", { body: `${count} requests wait for a decision.` });
  }
  told = count;
}

async function runs() {
  document.title = "Runs · Interlock";
  const words = el("input", { type: "search", "aria-label": "Search runs", placeholder: "Search" });
  const status = el("select", { "aria-label": "Status" }, ["", "running", "waiting", "interrupted", "done", "failed", "cancelled"].map((s) => el("option", { value: s }, s || "every status")));
  const rows = el("tbody"), total = el("p", { class: "soft", role: "status" });
  let start = 0;
  const look = async () => {
    const made = await ask(`/api/runs?${new URLSearchParams({ q: words.value, status: status.value, start })}`);
    total.textContent = made.total ? `${start + 1} to ${start + made.runs.length} of ${made.total} runs` : "No runs. Start one, or in a terminal: interlock -p 'what to do'";
    rows.replaceChildren(...made.runs.map((r) => el("tr", {}, el("td", {}, el("a", { href: `/run/${r.run}` }, r.title || r.run)),
      el("td", { class: r.status }, r.status), el("td", { class: "wide" }, r.workflow), el("td", { class: "wide" }, r.workspace), el("td", {}, ago(r.updated)))));
  };
  const from = (n) => () => ((start = Math.max(0, n())), tried(look));
  for (const one of [words, status]) one.addEventListener("input", from(() => 0));
  main.replaceChildren(el("h1", {}, "Runs"), el("div", { class: "row" }, words, status,
    el("button", { onclick: from(() => start - 100) }, "Newer"), el("button", { onclick: from(() => start + 100) }, "Older")), total,
    el("table", {}, el("thead", {}, el("tr", {}, [["Run", ""], ["Status", ""], ["Workflow", "wide"], ["Folder", "wide"], ["Changed", ""]].map(([h, c]) => el("th", { scope: "col", class: c }, h)))), rows));
  await look();
  return every(2000, look);
}

function field(name, schema, required) {
  const kind = schema.type ?? schema.anyOf?.find((s) => s.type !== "null")?.type, id = `in-${name}`;
  const given = { id, name, "data-kind": kind ?? "json", required };
  const made = schema.enum ? el("select", given, el("option", { value: "" }), schema.enum.map((v) => el("option", {}, v)))
    : kind === "boolean" ? el("input", { ...given, type: "checkbox", required: false, checked: schema.default === true })
    : kind === "integer" || kind === "number" ? el("input", { ...given, type: "number", step: kind === "integer" ? "1" : "any" })
    : el("textarea", { ...given, rows: name === "prompt" ? "5" : "1", "data-kind": kind === "string" ? "string" : "json" });
  return el("div", {}, el("label", { for: id }, name, required ? " (required)" : ""), made, schema.description ? el("p", { class: "soft" }, schema.description) : null);
}

function valueOf(one) {
  if (one.type === "checkbox") return one.checked;
  if (one.value === "") return undefined;
  if (one.dataset.kind === "string" || one.tagName === "SELECT") return one.value;
  try { return JSON.parse(one.value); } catch { throw new Error(`${one.name} is not JSON: ${one.value.slice(0, 60)}`); }
}

async function start() {
  document.title = "Start · Interlock";
  const all = await ask("/api/workflows"), form = el("form"), wanted = new URLSearchParams(location.search).get("workflow") ?? "main";
  const which = el("select", { id: "which" }, all.filter((w) => !w.problem).map((w) => el("option", { selected: w.name === wanted }, w.name)));
  const fields = async () => {
    const { schema, summary, prompt } = await ask(`/api/workflows/${encodeURIComponent(which.value)}`);
    const names = Object.keys(schema.properties ?? {}).filter((n) => n !== "workspace");
    names.sort((a, b) => (b === prompt) - (a === prompt) || (schema.required ?? []).includes(b) - (schema.required ?? []).includes(a));
    const made = names.map((n) => field(n, schema.properties[n], (schema.required ?? []).includes(n)));
    form.replaceChildren(el("p", { class: "soft" }, summary), ...made.slice(0, 2), made.length > 2 ? el("details", {}, el("summary", {}, "More inputs"), made.slice(2)) : "",
      el("label", { for: "folder" }, "Folder (empty: where the server was started)"), el("input", { id: "folder" }), el("p", {}, el("button", { class: "main" }, "Start")));
  };
  form.addEventListener("submit", (e) => {
    e.preventDefault();
    tried(async () => {
      const input = {};
      for (const one of form.querySelectorAll("[name]")) { const v = valueOf(one); if (v !== undefined) input[one.name] = v; }
      say("Starting …");
      const made = await ask("/api/runs", { workflow: which.value, input, workspace: form.querySelector("#folder").value || undefined });
      go(`/run/${made.run}`);
    });
  });
  which.addEventListener("change", () => tried(fields));
  main.replaceChildren(el("h1", {}, "Start a run"), el("label", { for: "which" }, "Workflow"), which, form);
  await fields();
}

async function flows() {
  document.title = "Workflows · Interlock";
  const name = decodeURIComponent(location.pathname.slice("/flows/".length));
  const all = await ask("/api/workflows");
  if (!name) {
    main.replaceChildren(el("h1", {}, "Workflows"), el("table", {}, el("tbody", {}, all.map((w) =>
      el("tr", {}, el("td", {}, el("a", { href: `/flows/${encodeURIComponent(w.name)}` }, w.name)), el("td", {}, w.problem || w.summary))))));
    return;
  }
  const part = (n) => all.some((w) => w.name === n.replaceAll("_", "-")) && go(`/flows/${n.replaceAll("_", "-")}`);
  const depth = el("select", { "aria-label": "Levels of parts", onchange: () => tried(draw) }, [1, 2, 3].map((n) => el("option", { value: n }, `${n} ${n > 1 ? "levels" : "level"}`)));
  const place = el("div"), draw = async () => place.replaceChildren(await drawing(`/api/workflows/${encodeURIComponent(name)}/diagram?depth=${depth.value}`, part));
  main.replaceChildren(el("h1", {}, name), el("div", { class: "row" }, depth, el("a", { href: `/start?workflow=${encodeURIComponent(name)}` }, "Start one")), place);
  await draw();
}

async function show() {
  leave();
  leave = () => {};
  const [, first, second] = location.pathname.split("/");
  document.querySelectorAll("nav a").forEach((a) => a.getAttribute("href") === `/${first}` ? a.setAttribute("aria-current", "page") : a.removeAttribute("aria-current"));
  try {
    leave = (await (first === "run" ? run(main, second) : ({ all: runs, start, flows })[first]?.() ?? inbox())) ?? leave;
    if (first) ask("/api/requests").then((w) => notify(w.length)).catch(() => {});
  } catch (error) {
    main.replaceChildren(el("h1", {}, error.status === 401 ? "Sign in" : "Not shown"), el("p", {}, shown(error.message)));
  }
}

function go(path) {
  history.pushState(null, "", path);
  show().then(() => (window.scrollTo(0, 0), main.focus()));
}

document.addEventListener("click", (event) => {
  const link = event.target.closest("a[href^='/']");
  if (link && !event.metaKey && !event.ctrlKey && event.button === 0) (event.preventDefault(), go(link.getAttribute("href")));
});
document.addEventListener("keydown", keys);
window.addEventListener("popstate", show);

const token = /^#token=(.+)$/.exec(location.hash)?.[1];
if (token) {
  history.replaceState(null, "", location.pathname);
  const answer = await fetch("/login", { method: "POST", body: token });
  if (!answer.ok) say((await answer.json()).detail);
}
await show();
