// A part of another page, put in when it comes near the view: for what takes a second to work out.
// Without scripts the link inside leads to that page. What can't be had is asked for again, and meanwhile it says so.

import { persist } from "./again.js";

const AGAIN_MS = 60000;
const sourceOf = new WeakMap();

async function fetchPart(place) {
  try {
    const answer = await fetch(place.dataset.include, { headers: { Accept: "text/html" }, credentials: "same-origin" });
    return { answer, text: await answer.text() };
  } catch {
    return { answer: null, text: "" };
  }
}

/** Put the part in its place, where it could be had. */
async function put(place) {
  const { answer, text } = await fetchPart(place);
  const part = answer?.ok ? new DOMParser().parseFromString(text, "text/html").querySelector("[data-part]") : null;
  if (!part) return { isThere: false, answer };
  const source = part.innerHTML;
  if (source === sourceOf.get(place)) return { isThere: true };
  const open = new Set([...place.querySelectorAll("details[open] > summary")].map((summary) => summary.textContent));
  place.replaceChildren(...part.childNodes);
  for (const summary of place.querySelectorAll("details > summary")) if (open.has(summary.textContent)) summary.parentElement.open = true;
  sourceOf.set(place, source);
  place.removeAttribute("aria-busy");
  place.dispatchEvent(new CustomEvent("plimsoll:swapped", { bubbles: true }));
  return { isThere: true };
}

/** Until it is there, or is refused for good; meanwhile it says so. */
async function fill(place) {
  const says = Object.assign(document.createElement("p"), { className: "quiet" });
  says.setAttribute("role", "status");
  const isThere = await persist(place, () => put(place), (isTriedAgain) => {
    const what = sourceOf.has(place) ? "What stands here may be old: it can't be shown anew" : "This can't be shown";
    says.textContent = isTriedAgain ? `${what} right now; trying again.` : `${what}.`;
    if (!says.isConnected) place.append(says);
  });
  if (isThere) says.remove();
  place.removeAttribute("aria-busy");
  return isThere;
}

export async function startInclude(place) {
  place.setAttribute("aria-busy", "true");
  const isPaused = () => document.querySelector("[data-live-pause]")?.getAttribute("aria-pressed") === "true";
  while (place.isConnected) {
    const isThere = await fill(place);
    if (!isThere || document.body.dataset.asOf) return;
    do await new Promise((done) => setTimeout(done, AGAIN_MS));
    while (place.isConnected && (document.hidden || isPaused() || place.contains(document.activeElement)));
  }
}
