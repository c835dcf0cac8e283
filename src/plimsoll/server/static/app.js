// What every page needs; whatever only some pages need is fetched when it is there.
import { moduleFor } from "./again.js";
import { startKeys } from "./keys.js";
import { startLive } from "./live.js";
import { startActs } from "./acts.js";
import { toast } from "./toast.js";

/** A table that is wider than its place can be scrolled by keyboard, and a screen reader is told what it is. */
const scrolled = new ResizeObserver((entries) => {
  for (const { target } of entries) {
    const isWide = target.scrollWidth > target.clientWidth + 1 || target.scrollHeight > target.clientHeight + 1;
    const name = target.querySelector("caption")?.textContent.trim();
    for (const [key, value] of [["tabindex", "0"], ["role", "region"], ["aria-label", name || "A table"]]) {
      if (isWide) target.setAttribute(key, value);
      else target.removeAttribute(key);
    }
  }
});

/** Everything that belongs to elements; called again for what live.js has put into the page. */
function dress(root) {
  for (const button of root.querySelectorAll("[data-copy]")) button.hidden = !navigator.clipboard;
  for (const wrap of root.querySelectorAll(".table-wrap:not([tabindex])")) scrolled.observe(wrap);
  watch(root, "[data-chart]", "./charts.js", "startChart");
  watch(root, "[data-include]", "./include.js", "startInclude", "1000px");
  watch(root, "[data-campaign-plan]", "./campaigns.js", "startPlanning");
  watch(root, "[data-quota]", "./quota.js", "startQuota");
  watch(root, "[data-nodemap]", "./nodemap.js", "startMap");
  watch(root, "[data-compose]", "./compose.js", "startCompose");
  watch(root, "form[data-verify]", "./verify.js", "startVerify");
}

/** Start a module's part for each element, when the element comes near the view: a screen ahead for what is fetched. */
function watch(root, selector, address, start, margin = "200px") {
  const found = [...root.querySelectorAll(selector)].filter((element) => !element.dataset.started);
  if (root.matches?.(selector) && !root.dataset.started) found.push(root);
  if (!found.length) return;
  const near = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      near.unobserve(entry.target);
      begin(entry.target, address, start).catch((error) => console.error(error));
    }
  }, { rootMargin: margin });
  for (const element of found) {
    element.dataset.started = "yes";
    near.observe(element);
  }
}

/** A server that is away for a moment leaves nothing without its script. */
async function begin(element, address, start) {
  const module = await moduleFor(element, address);
  await module?.[start](element);
}

document.addEventListener("click", (event) => {
  const copy = event.target.closest?.("[data-copy]");
  if (copy) navigator.clipboard.writeText(copy.dataset.copy).then(() => toast("Copied"));
  for (const open of document.querySelectorAll("details[data-close-outside][open]")) {
    if (!open.contains(event.target)) open.open = false;
  }
});
document.addEventListener("change", (event) => {
  // Without scripts a filter has its button; with them a choice is enough.
  const form = event.target.closest?.("form[data-submit-on-change]");
  if (form && event.target.matches("select, input[type=checkbox], input[type=radio], input[type=range]")) form.requestSubmit();
});
document.addEventListener("plimsoll:swapped", (event) => dress(event.target));

dress(document);
startKeys();
startActs();
startLive();
