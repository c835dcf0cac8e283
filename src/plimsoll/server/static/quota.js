// The quota page: a slider that shows the plan of another buffer at once.
// The URL follows the slider, so that what is seen can be sent to somebody; live.js puts the new numbers in place.

import { refresh } from "./live.js";

const WAIT_MS = 120;
const ATTEMPTS_MAX = 20;

/** The next time that the page is fetched by itself. */
function refreshed() {
  return new Promise((done) => document.addEventListener("plimsoll:refreshed", done, { once: true }));
}

/** Refresh until the page shows this policy: a refresh that was under way already shows the one before. */
async function shown(policy) {
  for (let attempt = 0; attempt < ATTEMPTS_MAX; attempt += 1) {
    // A server that is too busy to answer is not asked any faster for it: live.js says when.
    if (!(await refresh())) await refreshed();
    if (document.querySelector("[data-shown-policy]")?.dataset.shownPolicy === policy) return;
    await new Promise((done) => setTimeout(done, WAIT_MS));
  }
}

/** The forms mean the policy that is shown; what one has told of another policy is told no more. */
function follow(policy) {
  for (const select of document.querySelectorAll("select[data-follows-policy]")) {
    if (select.value === policy) continue;
    if (![...select.options].some((option) => option.value === policy)) select.add(new Option(policy, policy));
    select.value = policy;
    select.dispatchEvent(new Event("input", { bubbles: true }));
  }
}

export function startQuota(form) {
  const slider = form.querySelector("input[type=range]");
  const says = form.querySelector("output");
  let timer = 0;
  let isBusy = false;
  let isDue = false;

  const show = async () => {
    if (isBusy) {
      isDue = true;
      return;
    }
    isBusy = true;
    document.body.classList.add("quota-busy");
    do {
      isDue = false;
      const url = new URL(location.href);
      url.searchParams.delete("buffer");
      url.searchParams.set("policy", `fixed:${Number(slider.value) / 100}`);
      history.replaceState(history.state, "", url);
      follow(url.searchParams.get("policy"));
      await shown(url.searchParams.get("policy"));
    } while (isDue);
    isBusy = false;
    document.body.classList.remove("quota-busy");
  };

  slider.addEventListener("input", () => {
    says.textContent = `${slider.value} %`;
    clearTimeout(timer);
    timer = setTimeout(show, WAIT_MS);
  });
}
