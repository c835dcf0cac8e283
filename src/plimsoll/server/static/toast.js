// A short word at the edge of the page, for what was done.

const SHOWN_MS = 5000;
let timer = 0;

export function toast(text) {
  const box = document.querySelector("[data-toast]");
  box.textContent = text;
  box.hidden = false;
  clearTimeout(timer);
  timer = setTimeout(() => { box.hidden = true; }, SHOWN_MS);
}
