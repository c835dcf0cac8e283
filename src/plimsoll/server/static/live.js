// Live pages: when something was recorded, the page is fetched again and only what differs is put in its place.
// Nothing moves that somebody has paused, nor a part in which somebody types or is asked something: that waits, and the
// page says so. A tab that nobody looks at listens to nothing. The past never moves.
// A page that can't be fetched says that it may be old, and is asked for again until it can.

import { isPassing, pauseAfter } from "./again.js";
import { byName, nameOf } from "./alike.js";

const LEAST_MS = 2000;

const state = {
  revision: 0, isPaused: false, isDue: false, isBusy: false, pressed: null, lastAt: 0, timer: 0, notBefore: 0,
  streamFailures: 0, pageFailures: 0, isLost: false, isOut: false, behind: "",
};
const held = new Map(); // a part in which somebody is busy: what it becomes when they are done

function dot(kind, says) {
  const mark = document.querySelector("[data-live-dot]");
  const text = document.querySelector("[data-live-says]");
  if (mark) mark.className = `stamp-dot ${kind}`;
  if (text && text.textContent !== says) text.textContent = says;
}

function showStatus() {
  if (state.isPaused) dot("paused", state.isDue ? "Paused. Something has changed since." : "Paused: nothing on this page moves.");
  else if (state.isOut) dot("off", "You are signed out: load the page again to sign in. What you see may be old.");
  else if (state.isLost) dot("off", "The connection is lost; trying again. What you see may be old.");
  else if (state.behind) dot("off", `${state.behind} What you see may be old.`);
  else if (held.size) dot("waits", `Live, but what stands around ${held.size > 1 ? `${held.size} forms` : "a form"} that you are filling in waits until you are done.`);
  else dot("on", "Live: the page follows what is recorded.");
}

/** Does a field of a form say something else than when it came? */
function isChanged(field) {
  if (field.type === "hidden" || !field.name) return false;
  if (field.type === "checkbox" || field.type === "radio") return field.checked !== field.defaultChecked;
  if (field.tagName !== "SELECT") return "defaultValue" in field && field.value !== field.defaultValue;
  const options = [...field.options];
  const first = Math.max(0, options.findIndex((option) => option.defaultSelected));
  return field.selectedIndex !== first && options.length > 0;
}

/** Is somebody in the middle of something inside this element? Nothing goes from under a button that is being pressed, and
 *  what a form says that was done is said no more. */
function isInUse(element) {
  if (state.pressed && element.contains(state.pressed)) return true;
  const active = document.activeElement;
  if (element.contains(active) && active.matches("input, textarea, select") && !active.form?.matches("[data-done]")) return true;
  if (element.querySelector("form[data-open], dialog[open]")) return true;
  return [...element.querySelectorAll("form[data-act]:not([data-done])")].some((form) => [...form.elements].some(isChanged));
}

/** Somebody may be done with something: what waited for that comes now. */
function letGo() {
  if (state.isPaused) return;
  for (const [part, next] of held) {
    if (part.isConnected && isInUse(part)) continue;
    held.delete(part);
    if (part.isConnected) swap(part, next);
  }
  showStatus();
}

/** The same address, and nothing older than what is shown or was told of: a page never goes back. */
export function asNewAsHeard(address) {
  const url = new URL(address, location.href);
  url.searchParams.set("at_least", state.revision);
  return url;
}

/** Fetch the page again, unless that is under way. False: it could not be had; it is asked for again by itself. */
export async function refresh() {
  if (state.isBusy) return true;
  state.isBusy = true;
  state.isDue = false;
  state.lastAt = Date.now();
  try {
    const { answer, text } = await fetchPage();
    if (!answer?.ok) return fallBehind(answer);
    state.behind = "";
    state.pageFailures = state.notBefore = 0;
    state.isOut = new URL(answer.url).pathname === "/signin";
    showStatus();
    if (state.isOut) return true;
    follow(new DOMParser().parseFromString(text, "text/html"));
    document.dispatchEvent(new CustomEvent("plimsoll:refreshed"));
    return true;
  } finally {
    state.isBusy = false;
  }
}

/** The page as it is now, whole; no answer where the connection broke. */
async function fetchPage() {
  try {
    const answer = await fetch(asNewAsHeard(location.href), { headers: { Accept: "text/html" }, credentials: "same-origin" });
    return { answer, text: await answer.text() };
  } catch {
    return { answer: null, text: "" };
  }
}

/** The page could not be had: say so, and ask again, later each time. What does not pass waits for the next event. */
function fallBehind(answer) {
  if (isPassing(answer)) {
    state.behind = "The server can't show this page right now; trying again.";
    state.pageFailures += 1;
    state.notBefore = Date.now() + pauseAfter(state.pageFailures, answer);
    schedule();
  } else state.behind = `This page is not shown any more (the server answered ${answer.status}): load it again.`;
  showStatus();
  return false;
}

const parts = (root) => [...root.querySelectorAll("[data-live]")].filter((part) => !part.parentElement.closest("[data-live]"));
const partOf = (root, name) => root.querySelector(`[data-live="${CSS.escape(name)}"]`);

/** Every part becomes what it is by now. One that is new comes, and one that is no more is empty until it comes back. */
function follow(fresh) {
  held.clear();
  const before = parts(document);
  for (const next of parts(fresh)) {
    const now = partOf(document, next.dataset.live);
    if (now) swap(now, next);
    else arrive(next);
  }
  for (const now of before) {
    if (partOf(fresh, now.dataset.live)) continue;
    const gone = now.cloneNode(false);
    gone.hidden = true;
    swap(now, gone);
  }
  showStatus();
}

/** Put a new part where it is on the fresh page: behind what is before it there, or first in what it is in. */
function arrive(next) {
  const made = document.importNode(next, true);
  const twin = (part) => (part.dataset.live ? partOf(document, part.dataset.live) : part.id && document.getElementById(part.id));
  let at = next.previousElementSibling;
  while (at && !twin(at)) at = at.previousElementSibling;
  if (at) twin(at).after(made);
  else if (twin(next.parentElement)) twin(next.parentElement).prepend(made);
  else return;
  plain.set(made, next.innerHTML);
  made.dispatchEvent(new CustomEvent("plimsoll:swapped", { bubbles: true }));
}

/** Every part as it came, before anything was opened, put in or drawn there. */
const plain = new WeakMap(parts(document).map((part) => [part, part.innerHTML]));

function swap(now, next) {
  if (plain.get(now) === next.innerHTML) {
    now.hidden = next.hidden;
    return;
  }
  if (isInUse(now)) {
    held.set(now, next);
    return;
  }
  const source = next.innerHTML;
  const folds = new Map([...byName(now, "details")].map(([name, details]) => [name, details.open]));
  const active = now.contains(document.activeElement) && document.activeElement !== now ? document.activeElement : null;
  const focus = active && { tag: active.tagName, name: nameOf(now, active), tabIndex: active.tabIndex };
  const row = now.querySelector("tr.here");
  const here = row && nameOf(now, row);
  const scrolls = [...now.querySelectorAll(".table-wrap")].map((wrap) => wrap.scrollLeft);
  const texts = [...now.querySelectorAll("[data-number], td.n")].map((cell) => cell.textContent);
  keepDrawn(now, next);
  now.replaceChildren(...next.childNodes);
  now.hidden = next.hidden;
  plain.set(now, source);
  for (const [name, details] of byName(now, "details")) details.open = folds.get(name) ?? details.open;
  if (focus) focusOn(now, focus);
  if (here) byName(now, "tr").get(here)?.classList.add("here");
  now.querySelectorAll(".table-wrap").forEach((wrap, place) => { wrap.scrollLeft = scrolls[place] ?? 0; });
  const cells = [...now.querySelectorAll("[data-number], td.n")];
  if (cells.length === texts.length) {
    cells.forEach((cell, place) => { if (cell.textContent !== texts[place]) cell.classList.add("changed"); });
  }
  now.dispatchEvent(new CustomEvent("plimsoll:swapped", { bubbles: true }));
}

/** What was drawn or put in by scripts stays, where it comes from the same data. */
function keepDrawn(now, next) {
  for (const kind of ["chart", "nodemap", "include"]) {
    for (const drawn of now.querySelectorAll(`[data-${kind}][data-started]`)) {
      const same = next.querySelector(`[data-${kind}="${CSS.escape(drawn.dataset[kind])}"]`);
      if (!same) continue;
      if (kind === "chart") {
        const spec = document.getElementById(drawn.dataset.chart)?.textContent;
        if (spec !== next.querySelector(`#${CSS.escape(drawn.dataset.chart)}`)?.textContent) continue;
      }
      same.replaceWith(drawn);
    }
  }
}

/** The keyboard stays where it was: on the same thing, or in the same part where that is no more. */
function focusOn(part, { tag, name, tabIndex }) {
  const same = byName(part, tag).get(name) ?? part;
  if (same.tabIndex < 0 && !same.hasAttribute("tabindex")) same.tabIndex = same === part ? -1 : tabIndex;
  same.focus({ preventScroll: true });
}

/** Soon, but at most once in two seconds, not before the server wants it, and only in sight. */
function schedule() {
  state.isDue = true;
  if (state.isPaused || document.hidden || state.timer) return showStatus();
  const wait = Math.max(150, state.lastAt + LEAST_MS - Date.now(), state.notBefore - Date.now());
  state.timer = setTimeout(async () => {
    state.timer = 0;
    if (state.isPaused || document.hidden) return;
    await refresh();
    if (state.isDue) schedule();
  }, wait);
}

/** The server is back: the page need not wait out the pause that it was given before. */
function soon() {
  clearTimeout(state.timer);
  state.timer = state.notBefore = 0;
  schedule();
}

let source = null;
let again = 0;

function hang() {
  clearTimeout(again);
  source?.close();
  source = null;
}

/** One stream for a tab, and none for one that nobody looks at: a browser opens only a few to one host. */
function listen() {
  hang();
  if (document.hidden) return;
  const mine = new EventSource(`/api/v1/changes?after=${state.revision}`);
  source = mine;
  mine.onopen = () => {
    if (state.isLost) soon();
    state.isLost = false;
    state.streamFailures = 0;
    showStatus();
  };
  mine.onmessage = (event) => {
    state.revision = Math.max(state.revision, JSON.parse(event.data).revision);
    schedule();
  };
  mine.onerror = () => {
    state.isLost = true;
    showStatus();
    if (mine.readyState !== EventSource.CLOSED) return;
    // The browser has given up (an answer that was no stream); we have not. A page says whether we are signed out.
    if (!state.isPaused) schedule();
    state.streamFailures += 1;
    again = setTimeout(listen, pauseAfter(state.streamFailures, null));
  };
}

export function startLive() {
  if (document.body.dataset.asOf || !document.querySelector("[data-live]")) return;
  const button = document.querySelector("[data-live-pause]");
  if (!button) return;
  button.hidden = false;
  state.revision = Number(document.body.dataset.revision);
  button.addEventListener("click", () => {
    state.isPaused = !state.isPaused;
    button.setAttribute("aria-pressed", String(state.isPaused));
    button.textContent = state.isPaused ? "Go on" : "Pause";
    if (!state.isPaused && state.isDue) schedule();
    letGo();
    showStatus();
  });
  for (const kind of ["focusout", "change", "plimsoll:left"]) document.addEventListener(kind, () => setTimeout(letGo));
  document.addEventListener("pointerdown", (event) => { state.pressed = event.target; }, { capture: true });
  for (const kind of ["pointerup", "pointercancel"]) {
    document.addEventListener(kind, () => { state.pressed = null; setTimeout(letGo); }, { capture: true });
  }
  document.addEventListener("visibilitychange", () => {
    listen();
    if (!document.hidden && state.isDue) schedule();
  });
  addEventListener("pagehide", hang);
  addEventListener("pageshow", (event) => { if (event.persisted) { listen(); schedule(); } });
  listen();
}
