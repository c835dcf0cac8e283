// A part of another page, put in when it comes near the view: for what takes a second to work out.
// Without scripts the link inside leads to that page.

const AGAIN_MS = 60000;
const sourceOf = new WeakMap();

async function put(place) {
  const answer = await fetch(place.dataset.include, { headers: { Accept: "text/html" }, credentials: "same-origin" });
  if (!answer.ok) throw new Error(`${place.dataset.include}: ${answer.status}`);
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  const part = page.querySelector("[data-part]");
  const source = part.innerHTML;
  if (source === sourceOf.get(place)) return;
  const open = new Set([...place.querySelectorAll("details[open] > summary")].map((summary) => summary.textContent));
  place.replaceChildren(...part.childNodes);
  for (const summary of place.querySelectorAll("details > summary")) if (open.has(summary.textContent)) summary.parentElement.open = true;
  sourceOf.set(place, source);
  place.removeAttribute("aria-busy");
  place.dispatchEvent(new CustomEvent("plimsoll:swapped", { bubbles: true }));
}

export async function startInclude(place) {
  place.setAttribute("aria-busy", "true");
  try {
    await put(place);
  } catch (error) {
    place.removeAttribute("aria-busy");
    place.append(Object.assign(document.createElement("p"), { className: "quiet", textContent: "This can't be shown right now." }));
    console.error(error);
    return;
  }
  if (document.body.dataset.asOf) return;
  const timer = setInterval(() => {
    if (!place.isConnected) {
      clearInterval(timer);
      return;
    }
    const isPaused = document.querySelector("[data-live-pause]")?.getAttribute("aria-pressed") === "true";
    if (!document.hidden && !isPaused && !place.contains(document.activeElement)) put(place).catch(() => {});
  }, AGAIN_MS);
}
