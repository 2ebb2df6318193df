// lists: the runs, the workflows, and the form that starts one.
import { ask, badge, button, calm, el, heads, say, show, since, standing, tried } from "./dom.js";
import { GraphMap } from "./map.js";

const AT_ONCE = 100;

/** All runs, with search and status. */
export async function runs(main) {
  document.title = "Runs · Interlock";
  const given = new URLSearchParams(location.search);
  const words = el("input", { type: "search", "aria-label": "Search runs", placeholder: "Search title, workflow, folder, id", value: given.get("q") ?? "" });
  const status = el("select", { "aria-label": "Status" }, ["", "running", "queued", "waiting", "interrupted", "done", "failed", "cancelled"].map((s) => el("option", { value: s, selected: s === given.get("status") }, s || "Any status")));
  const total = el("p", { class: "soft", role: "status" }), rows = el("tbody"), idle = el("p", { class: "bad", role: "status" }), beside = el("p", { class: "soft", role: "status" });
  const table = el("table", { class: "runs" }, heads("Run", "Status", "Workflow", "Folder", "Changed"), rows);
  let start = Number(given.get("start") ?? 0) || 0;
  const newer = button("Newer", () => turn(start - AT_ONCE)), older = button("Older", () => turn(start + AT_ONCE));
  const line = (r) => el("tr", {}, el("td", { class: "title" }, el("a", { href: `/run/${r.run}`, title: r.title.length > 150 ? r.title : null }, r.title || r.run)), el("td", {}, badge(...standing(r))),
    el("td", { class: "wide" }, r.workflow), el("td", { class: "wide place" }, r.workspace), el("td", { class: "when" }, since(r.updated)));
  const look = calm(async () => {
    const query = new URLSearchParams({ q: words.value, status: status.value, start });
    const made = await ask(`/api/runs?${query}`);
    history.replaceState(null, "", words.value || status.value || start ? `/all?${query}` : "/all");
    total.textContent = made.total ? `${start + 1} to ${start + made.runs.length} of ${made.total.toLocaleString()} runs` : words.value || status.value ? "No run matches." : "";
    const focus = document.activeElement?.closest?.("tr a")?.getAttribute("href");
    if (made.total || words.value || status.value) show(rows, made.runs.map(line));
    else show(total, "No runs yet. ", el("a", { href: "/start" }, "Start one"), ", or in a terminal: ", el("code", {}, "interlock -p 'what to do'"));
    table.hidden = !made.total;
    idle.textContent = made.no_worker;
    beside.textContent = made.shared_folders.join(" ");
    if (focus) rows.querySelector(`a[href="${CSS.escape(focus)}"]`)?.focus({ preventScroll: true });
    [newer.disabled, older.disabled] = [start === 0, start + AT_ONCE >= made.total];
    newer.parentElement.hidden = made.total <= AT_ONCE;
  }, 200);
  const turn = (to) => ((start = Math.max(0, to)), look());
  for (const one of [words, status]) one.addEventListener("input", () => turn(0));
  show(main, el("h1", {}, "Runs"), el("div", { class: "row filters" }, words, status), total, idle, beside, table, el("div", { class: "row" }, newer, older));
  await look();
  return { look, leave: () => {} };
}

const kindOf = (schema) => schema.type ?? schema.anyOf?.find((s) => s.type !== "null")?.type;
function field(name, schema, required) {
  const kind = kindOf(schema), id = `in-${name}`, picks = schema.enum ?? schema.anyOf?.find((s) => s.enum)?.enum;
  const given = { id, name, "data-kind": kind ?? "json", required, "aria-describedby": schema.description ? `${id}-about` : null };
  const made = picks ? el("select", given, el("option", { value: "" }, "default"), picks.map((v) => el("option", {}, v)))
    : kind === "boolean" ? el("input", { ...given, type: "checkbox", required: false, checked: schema.default === true })
    : kind === "integer" || kind === "number" ? el("input", { ...given, type: "number", step: kind === "integer" ? "1" : "any", placeholder: schema.default })
    : kind === "string" && name !== "prompt" ? el("input", { ...given, type: "text", placeholder: schema.default })
    : el("textarea", { ...given, rows: name === "prompt" ? "5" : "2", "data-kind": kind === "string" ? "string" : "json", placeholder: kind === "string" ? "" : "JSON" });
  const label = el("label", { for: id }, name.replaceAll("_", " "), required ? "" : el("span", { class: "soft" }, " (optional)"));
  const about = schema.description && el("p", { class: "soft hint", id: `${id}-about` }, schema.description.replace(/\s*★$/, ""));
  return el("div", { class: "field" }, kind === "boolean" ? el("label", { class: "check", for: id }, made, name.replaceAll("_", " ")) : [label, made], about);
}

function valueOf(one) {
  if (one.type === "checkbox") return one.checked;
  if (one.value === "") return undefined;
  if (one.dataset.kind === "string" || one.tagName === "SELECT") return one.value;
  try { return JSON.parse(one.value); } catch { throw new Error(`${one.name} is not JSON: ${one.value.slice(0, 60)}`); }
}

/** A form made of a workflow's input schema. */
export async function start(main) {
  document.title = "Start · Interlock";
  const wanted = new URLSearchParams(location.search).get("workflow") ?? "main", form = el("form");
  const about = (name) => ask(`/api/workflows/${encodeURIComponent(name)}`);
  const head = el("h1", {}, "Start a run"), problem = el("p", { class: "bad", role: "alert" });
  show(main, el("div", { class: "narrow" }, head, el("p", { class: "soft" }, "Loading the workflows …")));
  const first = about(wanted).catch(() => null), { workflows, queue } = await ask("/api/workflows");
  const which = el("select", { id: "which" }, workflows.filter((w) => !w.problem).map((w) => el("option", { selected: w.name === wanted }, w.name)));
  const fields = async () => {
    const { schema, summary, prompt } = (which.value === wanted && (await first)) || (await about(which.value)), needed = schema.required ?? [];
    const names = Object.keys(schema.properties ?? {}).filter((n) => n !== "workspace");
    names.sort((a, b) => (b === prompt) - (a === prompt) || needed.includes(b) - needed.includes(a));
    const shown = names.filter((n) => n === prompt || needed.includes(n)), rest = names.filter((n) => !shown.includes(n));
    const folder = el("div", { class: "field" }, el("label", { for: "folder" }, "folder", el("span", { class: "soft" }, " (optional)")), el("input", { id: "folder", type: "text", placeholder: "where the server was started" }));
    const tree = el("div", { class: "field" }, el("label", { class: "check", for: "worktree" }, el("input", { id: "worktree", type: "checkbox" }), "in a git worktree of its own"));
    const early = queue ? el("div", { class: "field" }, el("label", { for: "priority" }, "priority", el("span", { class: "soft" }, " (optional)")), el("input", { id: "priority", type: "number", min: "-100", max: "100", placeholder: "0; higher runs first" }), el("p", { class: "soft hint" }, `A worker of the queue ${queue} drives the run, within its limits.`)) : null;
    show(form, el("p", { class: "soft" }, summary), shown.map((n) => field(n, schema.properties[n], needed.includes(n))), folder, tree, early,
      rest.length ? el("details", {}, el("summary", {}, `${rest.length} more inputs`), rest.map((n) => field(n, schema.properties[n], false))) : null, el("p", {}, el("button", { class: "main" }, "Start the run")), problem);
  };
  form.addEventListener("submit", (e) => {
    e.preventDefault();
    show(problem);
    tried(async () => {
      const input = {};
      for (const one of form.querySelectorAll("[name]")) { const v = valueOf(one); if (v !== undefined) input[one.name] = v; }
      say("Starting …");
      const early = form.querySelector("#priority")?.value;
      const made = await ask("/api/runs", { workflow: which.value, input, workspace: form.querySelector("#folder").value || undefined, worktree: form.querySelector("#worktree").checked || undefined, priority: early ? Number(early) : undefined });
      window.dispatchEvent(new CustomEvent("go", { detail: `/run/${made.run}` }));
    }, (text) => (say(""), show(problem, text)));
  });
  which.addEventListener("change", () => tried(fields));
  show(main, el("div", { class: "narrow" }, head, el("div", { class: "field" }, el("label", { for: "which" }, "workflow"), which), form));
  await fields();
}

/** The workflows; with a name, that one's graph. */
export async function flows(main, name) {
  document.title = `${name || "Workflows"} · Interlock`;
  show(main, el("h1", {}, name || "Workflows"), el("p", { class: "soft" }, "Loading …"));
  const { workflows, ignored } = await ask("/api/workflows");
  if (!name) {
    return void show(main, el("h1", {}, "Workflows"), ignored.map((line) => el("p", { class: "warn" }, line)), el("table", { class: "flows" }, heads("Workflow", "What it does"), el("tbody", {}, workflows.map((w) =>
      el("tr", {}, el("td", {}, el("a", { href: `/flows/${encodeURIComponent(w.name)}` }, w.name)), el("td", { class: w.problem ? "bad" : "" }, w.problem || w.summary))))));
  }
  const of = (node) => workflows.find((w) => w.name === node.split(".").at(-1).replaceAll("_", "-"))?.name;
  const hint = el("p", { class: "soft", role: "status" }, "A node with a double frame is a graph of its own: choose it to open it.");
  const map = new GraphMap(`/api/workflows/${encodeURIComponent(name)}/diagram`, (node) => (of(node) ? window.dispatchEvent(new CustomEvent("go", { detail: `/flows/${of(node)}` })) : say(`${node} is a step, not a graph of its own.`)), `Graph of ${name}`);
  show(main, el("div", { class: "row spread" }, el("h1", {}, name), el("a", { class: "button main", href: `/start?workflow=${encodeURIComponent(name)}` }, "Start a run")),
    el("p", {}, workflows.find((w) => w.name === name)?.summary ?? ""), hint, el("div", { class: "flow" }, map.place));
  await map.load();
}
