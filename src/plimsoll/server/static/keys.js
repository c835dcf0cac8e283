// Keys: "/" why, "?" keys, g and a letter for a page, j and k in tables, p for pause. Never while somebody types.

const CHORD_MS = 1200;

function isTyping(target) {
  return target.closest?.("input, textarea, select, [contenteditable]") !== null && target.closest !== undefined;
}

function rows() {
  return [...document.querySelectorAll("table[data-rows] tbody tr")].filter((row) => row.offsetParent !== null && row.querySelector("a, button"));
}

function step(by) {
  const all = rows();
  if (!all.length) return;
  const here = all.findIndex((row) => row.classList.contains("here") || row.contains(document.activeElement));
  const next = here < 0 ? (by > 0 ? firstInView(all) : all.length - 1) : Math.max(0, Math.min(all.length - 1, here + by));
  for (const row of all) row.classList.toggle("here", row === all[next]);
  const link = all[next].querySelector("a, button");
  link.focus({ preventScroll: true });
  all[next].scrollIntoView({ block: "nearest" });
}

function firstInView(all) {
  return Math.max(0, all.findIndex((row) => row.getBoundingClientRect().top > 80));
}

export function startKeys() {
  const dialog = document.getElementById("keys");
  const showKeys = () => { if (dialog.open) dialog.close(); else dialog.showModal(); };
  document.querySelector("[data-keys]")?.addEventListener("click", showKeys);
  let chordUntil = 0;
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    if (event.key === "Escape") {
      for (const open of document.querySelectorAll("details[data-close-outside][open]")) {
        open.open = false;
        open.querySelector("summary").focus();
      }
      if (event.target.id === "why-box") event.target.blur();
      return;
    }
    if (isTyping(event.target)) return;
    if (Date.now() < chordUntil) {
      chordUntil = 0;
      const link = document.querySelector(`.nav a[data-go="${CSS.escape(event.key)}"]`);
      if (link) {
        event.preventDefault();
        link.click();
        return;
      }
    }
    const acts = {
      "/": () => { const box = document.getElementById("why-box"); box?.focus(); box?.select(); },
      "?": showKeys,
      g: () => { chordUntil = Date.now() + CHORD_MS; },
      j: () => step(+1),
      k: () => step(-1),
      p: () => document.querySelector("[data-live-pause]")?.click(),
    };
    if (event.target.closest?.("[data-own-keys]") && event.key !== "?" && event.key !== "/") return;
    if (Object.hasOwn(acts, event.key)) {
      event.preventDefault();
      acts[event.key]();
    }
  });
}
