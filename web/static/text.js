// text: draws what models and tools wrote: light Markdown, diffs with line numbers, long outputs.
import { button, el, put, show } from "./dom.js";

const INLINE = /(`[^`\n]+`|\*\*[^*\n]+\*\*|(?<![\w*])\*[^*\s][^*\n]*\*(?![\w*]))/;

/** Code, bold and slanted words of a line. */
export function inline(text) {
  return text.split(INLINE).map((part) =>
    part.length > 2 && part[0] === "`" && part.at(-1) === "`" ? el("code", {}, part.slice(1, -1))
      : part.length > 4 && part.startsWith("**") && part.endsWith("**") ? el("strong", {}, part.slice(2, -2))
      : part.length > 2 && part[0] === "*" && part.at(-1) === "*" && part[1] !== "*" ? el("em", {}, part.slice(1, -1)) : part);
}

const FENCED = /^([^\S\n]*```[^\n]*\n[\s\S]*?^[^\S\n]*```[^\S\n]*$)/m;
const CODE = /^([^\S\n]*)```[^\n]*\n([\s\S]*?)\n?[^\S\n]*```[^\S\n]*$/;
const ITEM = /^(\s*)(?:[-*+]|(\d{1,9})[.)])\s+(.*)/;
const RULE = /^\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$/;

/** Paragraphs, lists, tables, headings and code of a Markdown text. Anything else stays as it was written. */
export function prose(text) {
  const made = el("div", { class: "prose" });
  text.split(FENCED).forEach((part) => {
    const code = CODE.exec(part);
    if (code) made.append(block(code[2].replaceAll(new RegExp(`^[^\\S\\n]{0,${code[1].length}}`, "gm"), "")));
    else lines(made, part.split("\n"));
  });
  return made;
}

function lines(made, all) {
  const open = [];
  for (let at = 0; at < all.length; at += 1) {
    const line = all[at], item = ITEM.exec(line), head = /^#{1,6}\s+(.*)/.exec(line);
    if (item) put(listed(made, open, item), el("li", { value: item[2] }, inline(item[3])));
    else if (line.includes("|") && RULE.test(all[at + 1] ?? "") && all[at + 1].includes("|")) {
      const rest = all.slice(at + 2), end = rest.findIndex((row) => !row.includes("|"));
      const rows = end < 0 ? rest : rest.slice(0, end);
      made.append(table(cells(line), rows.map(cells)));
      [open.length, at] = [0, at + 1 + rows.length];
    } else if (open.length && /^\s{2,}\S/.test(line)) put(open.at(-1).list.lastElementChild, " ", inline(line.trim()));
    else if (line.trim()) ((open.length = 0), made.append(el("p", { class: head ? "head" : "" }, inline(head ? head[1] : line))));
  }
}

/** The list that an item belongs to: the open one of its depth and kind, or a new one, in the item above if it is deeper. */
function listed(made, open, [, space, number]) {
  const depth = space.replaceAll("\t", "    ").length, name = number === undefined ? "ul" : "ol";
  while (open.length && open.at(-1).depth > depth) open.pop();
  if (open.at(-1)?.depth === depth && open.at(-1).name !== name) open.pop();
  if (open.at(-1)?.depth !== depth) {
    const list = el(name);
    (open.at(-1)?.list.lastElementChild ?? made).append(list);
    open.push({ depth, name, list });
  }
  return open.at(-1).list;
}

const cells = (line) => line.trim().replace(/^\||\|$/g, "").split(/(?<!\\)\|/).map((cell) => cell.trim().replaceAll("\\|", "|"));
const table = (names, rows) => el("div", { class: "sheet", tabindex: "0" }, el("table", {},
  el("thead", {}, el("tr", {}, names.map((name) => el("th", { scope: "col" }, inline(name))))),
  el("tbody", {}, rows.map((row) => el("tr", {}, names.map((_, at) => el("td", {}, inline(row[at] ?? ""))))))));

const SHOWN = 4000;
/** Text as it came, in a box that scrolls; a part of it first if it is long. */
export function block(text, kind = "") {
  const box = el("pre", { tabindex: "0", class: kind }, text.slice(0, SHOWN));
  if (text.length <= SHOWN) return box;
  const place = el("div", {}, box, button(`Show all ${text.length.toLocaleString()} characters`, () => show(place, el("pre", { tabindex: "0", class: kind }, text))));
  return place;
}

const CUT = /^… \d+ more lines of this diff aren't shown \(\+(\d+) −(\d+)\)\.$/;
const NOISE = /^(diff --git|index |new file|deleted file|similarity|rename|old mode|new mode|\\ No newline)/;

/** The files of a unified diff: each with its path and its lines, which are `{sign, number, text}` or a gap. */
export function parsed(text) {
  const files = [];
  let file = null, was = 0, now = 0, left = [0, 0];
  for (const line of text.replace(/\n$/, "").split("\n")) {
    const hunk = /^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@/.exec(line);
    if (hunk) {
      file ??= start(files, "");
      if (file.lines.length) file.lines.push({ gap: true });
      [was, now] = [Number(hunk[1]), Number(hunk[3])];
      left = [Number(hunk[2] ?? 1), Number(hunk[4] ?? 1)];
      file.hunks.push({ at: was, lines: [] });
    } else if (file && (left[0] > 0 || left[1] > 0) && /^[-+ ]|^$/.test(line)) {
      const sign = line[0] ?? " ", one = { sign, text: line.slice(1), number: sign === "-" ? was : now };
      if (sign !== "+") ((was += 1), (left[0] -= 1));
      if (sign !== "-") ((now += 1), (left[1] -= 1));
      file[sign] = (file[sign] ?? 0) + 1;
      file.lines.push(one);
      file.hunks.at(-1).lines.push(one);
    } else if (file && CUT.test(line)) {
      const [, added, removed] = CUT.exec(line);
      file.cut = true;
      file["+"] = (file["+"] ?? 0) + Number(added);
      file["-"] = (file["-"] ?? 0) + Number(removed);
      file.lines.push({ sign: " ", text: line, number: "" });
    } else if (line.startsWith("--- ")) file = start(files, path(line));
    else if (line.startsWith("+++ ") && file) file.path = path(line) === "/dev/null" ? file.path : path(line);
    else if (line.startsWith("Binary files ")) start(files, line);
    else if (line.startsWith("diff --git ")) ((left = [0, 0]), (file = null));
    else if (!NOISE.test(line) && line) (file ??= start(files, "")).lines.push({ sign: " ", text: line, number: "" });
  }
  return files;
}

const path = (line) => line.slice(4).replace(/^"?[ab]\//, "").replace(/"?\t?$/, "");
function start(files, name) {
  const made = { path: name, lines: [], hunks: [] };
  files.push(made);
  return made;
}

const AT_ONCE = 600;
function row(line) {
  if (line.gap) return el("span", { class: "gap" }, "⋯");
  const kind = { "+": "add", "-": "gone" }[line.sign] ?? "";
  return el("span", { class: kind }, el("b", { "data-n": line.number }), el("i", { "data-s": line.sign }), line.text || " ");
}

function rows(lines) {
  const box = el("pre", { tabindex: "0", class: "diff" }, lines.slice(0, AT_ONCE).map(row));
  if (lines.length <= AT_ONCE) return box;
  const place = el("div", {}, box, button(`Show ${lines.length - AT_ONCE} more lines`, () => show(place, el("pre", { tabindex: "0", class: "diff" }, lines.map(row)))));
  return place;
}

/** A unified diff: each file with its path, what it gains and loses, and numbered lines. */
export function diff(text) {
  return el("div", { class: "diffs" }, parsed(text).map((file) => el("div", { class: "file" },
    file.path && el("p", { class: "path" }, el("code", {}, file.path === "/dev/null" ? "new file" : file.path), " ",
      el("span", { class: "plus" }, `+${file["+"] ?? 0}`), " ", el("span", { class: "minus" }, `−${file["-"] ?? 0}`)),
    rows(file.lines))));
}

/** A whole file with the lines that a diff takes and gives marked; null if the diff is cut or doesn't fit the file any more. */
export function whole(content, text) {
  const old = content.replace(/\n$/, "").split("\n"), [file] = parsed(text), made = [];
  if (file?.cut) return null;
  let at = 0;
  for (const hunk of file?.hunks ?? []) {
    for (; at < Math.min(hunk.at - 1, old.length); at += 1) made.push({ sign: " ", text: old[at] });
    for (const line of hunk.lines) {
      if (line.sign !== "+" && old[at] !== line.text) return null;
      if (line.sign !== "+") at += 1;
      made.push({ ...line });
    }
  }
  for (; at < old.length; at += 1) made.push({ sign: " ", text: old[at] });
  let number = 0;
  return rows(made.map((line) => ({ ...line, number: line.sign === "-" ? "" : (number += 1) })));
}
