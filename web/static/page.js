// page: signs in, shows the page that the address names, hears what changes, and notifies.
import { ago, ask, el, say, show, shown } from "./dom.js";
import { inbox, keys, request } from "./inbox.js";
import { askTabs, follow, isSignedIn, signIn } from "./sign-in.js";

const main = document.getElementById("main"), away = document.getElementById("away");
let look = async () => {}, leave = () => {}, shows = 0, unreached = false;

const lazily = (module, name) => async (...given) => (await import(`/static/${module}.js`))[name](...given);
const PART_OF = { request: "", run: "all" };
const pages = { stats: lazily("stats", "stats"), all: lazily("lists", "runs"), start: lazily("lists", "start"), flows: lazily("lists", "flows"), run: lazily("run", "run"), request: async (place, id) => ({ look: await request(place, id) }) };

async function open() {
  leave();
  let missed = false; // what changed while the page was loading
  [look, leave] = [async () => void (missed = true), () => {}];
  if (!isSignedIn()) return empty();
  const mine = (shows += 1), [, first, rest] = location.pathname.split("/");
  document.querySelectorAll("header nav a").forEach((a) => (a.getAttribute("href") === `/${PART_OF[first] ?? first}` ? a.setAttribute("aria-current", "page") : a.removeAttribute("aria-current")));
  try {
    const made = pages[first] ? await pages[first](main, decodeURIComponent(rest ?? "")) : { look: await inbox(main, counted) };
    if (mine !== shows) return made?.leave?.(); // another page was asked for meanwhile
    [look, leave] = [made?.look ?? look, made?.leave ?? leave];
    if (missed) look();
  } catch (error) {
    unreached = error instanceof TypeError && /import/i.test(error.message); // a module of the page didn't come
    if (!isSignedIn()) return empty();
    if (mine === shows) show(main, el("div", { class: "narrow" }, el("h1", {}, "Not shown"), el("p", {}, error.message)));
  }
}

/** Without a token there is nothing to show. */
function empty() {
  [away.textContent, document.title] = ["Not signed in.", "Sign in · Interlock"];
  counted(0);
  show(main, el("div", { class: "narrow" }, el("h1", {}, "Sign in"), el("p", {}, "This tab isn't signed in. In a terminal: ", el("code", {}, "interlock serve --open"), ". A tab that is opened beside a signed-in one is signed in, too.")));
}

function go(path) {
  history.pushState(null, "", path);
  open().then(() => (window.scrollTo(0, 0), main.focus({ preventScroll: true })));
}

function counted(count) {
  document.getElementById("waiting").textContent = count ? String(count) : "";
}

/** One tab hears what changes and tells the others: a browser has six connections for all its tabs. */
const tabs = new BroadcastChannel("interlock");
let known = null;
function heard(waiting, first) {
  if (unreached) return location.reload();
  counted(waiting.length);
  const news = known && waiting.filter((id) => !known.has(id));
  known = new Set(waiting);
  if (!document.hidden) look();
  if (first && news?.length) notify(news[0], waiting.length);
}
tabs.onmessage = ({ data }) => {
  if (data === "decided") look();
  else heard(data, false);
};
window.addEventListener("decided", () => look());
window.addEventListener("signed out", () => (leave(), empty()));

async function notify(id, count) {
  if (!("Notification" in window) || Notification.permission !== "granted" || document.hasFocus()) return;
  const one = await ask(`/api/requests/${encodeURIComponent(id)}`).catch(() => null);
  if (!one?.asked) return;
  const made = new Notification(count > 1 ? `${count} requests wait` : "A run waits for you", { body: shown(one.asked.headline), tag: "interlock" });
  made.onclick = () => (window.focus(), go(`/request/${id}`), made.close());
}

/** Hears what changes until this tab is signed out: then another tab's turn comes. */
const hears = () => (navigator.locks ? navigator.locks.request("interlock", () => new Promise(listen)) : listen(() => {}));
function listen(end) {
  follow("/api/changes", {
    opened: () => (away.textContent = ""),
    lost: () => {
      away.textContent = "The server is away. The page comes back by itself.";
      if (!isSignedIn()) (empty(), end()); // its message replaces that of a server that is away
    },
    heard: (data) => {
      const { waiting } = JSON.parse(data);
      tabs.postMessage(waiting);
      heard(waiting, true);
    },
  });
}

document.addEventListener("click", (event) => {
  const link = event.target.closest("a[href^='/']");
  if (!link || event.metaKey || event.ctrlKey || event.shiftKey || event.button !== 0) return;
  event.preventDefault();
  go(link.getAttribute("href"));
});
document.addEventListener("keydown", keys);
document.addEventListener("visibilitychange", () => document.hidden || look());
window.addEventListener("popstate", open);
window.addEventListener("go", ({ detail }) => go(detail));
setInterval(() => document.hidden || document.querySelectorAll("time[data-at]").forEach((t) => (t.textContent = ago(Number(t.dataset.at)))), 10000);
// Workers come and go without a change of any run.
setInterval(() => document.hidden || !document.querySelector(".badge.queued") || look(), 10000);

const given = () => /^#token=(.+)$/.exec(location.hash)?.[1];
window.addEventListener("hashchange", () => given() && location.reload()); // an address that is typed into an open tab
const token = given();
if (token) {
  history.replaceState(null, "", location.pathname + location.search);
  await signIn(token).catch(({ message }) => say(message));
}
if (!isSignedIn()) await askTabs();
window.addEventListener("signed in", () => location.reload()); // in another tab
open();
if (isSignedIn()) {
  ask("/api/me").then(({ role, why }) => {
    document.body.classList.toggle("looks", role === "view");
    document.getElementById("may").textContent = role === "view" ? `You can look at runs, but not decide or change anything. ${why}` : "";
  }).catch(() => {}); // not signed in any more, which the page says
  hears();
}
