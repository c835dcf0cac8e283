// Acts: forms that write. Sent as JSON with a key of their own, so that a repeated click is one act.
// A form may ask first what would happen (data-preview on a button), and then shows the button that does it: that one
// sends what was previewed, whatever has become of the form. live.js leaves a form in peace while it is `data-open`,
// or says something that was not done.

import { refresh } from "./live.js";
import { toast } from "./toast.js";

const ANSWER = "application/vnd.plimsoll.answer+json";
const SAME_ACT = "Try again: the same act is never done twice.";

const sentBy = new WeakMap(); // form: what it sent, and under which key, until there is an answer for good

/** One key for one act: a second click, or a retry after a lost answer, is the same. What says something else is another. */
function keyOf(form, sent) {
  const before = sentBy.get(form);
  if (before?.sent === sent) return before.key;
  const key = crypto.randomUUID();
  sentBy.set(form, { sent, key });
  return key;
}

/** What the form says: texts, numbers (data-type="number"), lists (data-type="list", by comma or line), flags
 *  (checked boxes; data-type="flag": always). */
function body(form) {
  const document_ = {};
  for (const field of form.elements) {
    if (!field.name || field.disabled || field.closest("[data-leave-out]")) continue;
    if (field.type === "radio" && !field.checked) continue;
    const value = field.type === "checkbox" ? field.checked : field.value;
    const kind = field.dataset.type;
    if (kind === "number") {
      if (value !== "") document_[field.name] = Number(value);
    } else if (kind === "list") {
      document_[field.name] = String(value).split(/[,\n]/).map((text) => text.trim()).filter(Boolean);
    } else if (field.type === "checkbox" || kind === "flag") {
      if (value) document_[field.name] = true;
    } else if (value !== "") document_[field.name] = value;
  }
  return document_;
}

/** What a form means as it stands: what is sent, how, and where.
 *  `POST /api/v1/quota/requests/{request}/approve`: what stands in braces is a field, and leaves the body. */
function meaning(form) {
  const document_ = body(form);
  const [method, pattern] = form.dataset.act.split(" ");
  const url = pattern.replace(/\{(\w+)\}/g, (_all, field) => {
    const value = document_[field] ?? "";
    delete document_[field];
    return encodeURIComponent(value);
  });
  return { method, url, document: document_ };
}

async function send(form, meant, { isDryRun }) {
  const { method, url } = meant;
  const sent = JSON.stringify(isDryRun ? { ...meant.document, dry_run: true } : meant.document);
  const headers = { "Content-Type": "application/json", Accept: ANSWER };
  if (!isDryRun) headers["Idempotency-Key"] = keyOf(form, `${method} ${url} ${sent}`);
  let answer;
  try {
    answer = await fetch(url, { method, headers, body: sent, credentials: "same-origin" });
  } catch {
    return { error: { code: "no_connection", message: "The server did not answer.", next_step: SAME_ACT, fields: {} } };
  }
  const said = await answer.json().catch(() => null);
  if (!answer.ok) {
    // The first one may still be under way, or be done with its answer lost: then the next click must be the same act.
    const isOpen = answer.status >= 500 || [409, 429].includes(answer.status);
    if (!isOpen && !isDryRun) sentBy.delete(form);
    const unsaid = { code: `http_${answer.status}`, message: `The server answered ${answer.status}.`, next_step: isOpen ? SAME_ACT : "", fields: {} };
    return { error: said?.error ?? unsaid };
  }
  return { said: said ?? {} };
}

function place(form) {
  let box = form.querySelector("[data-answer]");
  if (!box) {
    box = document.createElement("div");
    box.dataset.answer = "";
    form.append(box);
  }
  box.setAttribute("role", "status");
  box.setAttribute("aria-live", "polite");
  box.replaceChildren();
  return box;
}

/** Nothing is asked or offered any more; what the page has held back for this form may come. */
function leave(form) {
  clearErrors(form);
  form.querySelector("[data-answer]")?.replaceChildren();
  delete form.dataset.open;
  form.dispatchEvent(new CustomEvent("plimsoll:left", { bubbles: true }));
}

function leaveButton(form) {
  const made = element("button", "Leave it", "plain");
  made.type = "button";
  made.addEventListener("click", () => {
    leave(form);
    form.querySelector("button")?.focus();
  });
  return made;
}

function element(tag, text, className = "") {
  const made = document.createElement(tag);
  made.textContent = text;
  if (className) made.className = className;
  return made;
}

function clearErrors(form) {
  for (const old of form.querySelectorAll(".error-text")) old.remove();
  for (const field of form.querySelectorAll("[aria-invalid]")) field.removeAttribute("aria-invalid");
}

function showError(form, error) {
  const box = place(form);
  box.className = "act-answer bad";
  box.append(element("p", error.message, "bad-text"));
  if (error.next_step) box.append(element("p", `Next: ${error.next_step}`, "quiet"));
  box.append(leaveButton(form));
  let first = null;
  // A field is named as itself, or as the parameter that is meant.
  const named = { ...error.fields };
  if (typeof named.parameter === "string") named[named.parameter] ??= error.message;
  for (const [name, what] of Object.entries(named)) {
    const field = form.elements[name];
    if (!field?.setAttribute || field.type === "hidden") continue;
    field.setAttribute("aria-invalid", "true");
    const text = element("span", typeof what === "string" ? what : error.message, "error-text");
    text.id = `${field.id || name}-error`;
    field.setAttribute("aria-describedby", text.id);
    field.after(text);
    first ??= field;
  }
  (first ?? box).scrollIntoView?.({ block: "nearest" });
  first?.focus();
}

function showAnswer(form, said, { isDryRun }) {
  const box = place(form);
  box.className = "act-answer";
  if (isDryRun) box.append(element("p", "What would happen; nothing was done yet:", "quiet"));
  if (said.heading) box.append(element("pre", said.heading));
  for (const table of said.tables ?? []) if (table.rows?.length) box.append(asTable(table));
  for (const note of said.notes ?? []) box.append(element("p", note));
  if (!box.children.length) box.append(element("p", isDryRun ? "Nothing would change." : "Done."));
  return box;
}

function asTable({ columns, rows, title }) {
  const wrap = element("div", "", "table-wrap");
  const table = element("table", "", "table");
  if (title) table.append(element("caption", title));
  const head = table.createTHead().insertRow();
  for (const column of columns) head.append(element("th", column.replaceAll("_", " ")));
  const bodyPart = table.createTBody();
  for (const row of rows.slice(0, 50)) {
    const line = bodyPart.insertRow();
    for (const value of row) line.append(element("td", typeof value === "number" ? value.toLocaleString("en") : value ?? "–", typeof value === "number" ? "n" : ""));
  }
  wrap.append(table);
  return wrap;
}

/** Addresses with the token that was just made in them: it is told once, and so are they. */
function fillAddresses(form, box, secret) {
  const list = document.getElementById(form.dataset.fills);
  for (const line of list.querySelectorAll("li")) {
    const address = line.querySelector("[data-copy]").dataset.copy.replace("token=TOKEN", `token=${encodeURIComponent(secret)}`);
    const shown = element("p", `${line.firstElementChild.textContent}: `);
    const copy = element("button", "copy", "plain");
    copy.type = "button";
    copy.dataset.copy = address;
    copy.hidden = !navigator.clipboard;
    const command = element("span", "", "command");
    command.append(element("code", address), copy);
    shown.append(command);
    box.append(shown);
  }
}

async function act(form, meant, { isDryRun }) {
  clearErrors(form);
  const before = JSON.stringify(meaning(form));
  form.dataset.open = "asking";
  const buttons = [...form.querySelectorAll("button")];
  for (const button of buttons) button.disabled = true;
  const { said, error } = await send(form, meant, { isDryRun });
  for (const button of buttons) button.disabled = false;
  form.dataset.open = error ? "refused" : "told";
  if (error) showError(form, error);
  else if (!isDryRun) await done(form, said);
  else if (JSON.stringify(meaning(form)) === before) offer(form, meant, said);
  else showError(form, { message: "The form was changed meanwhile: ask again.", next_step: "", fields: {} });
}

/** What would happen, and the button that does just that, unless it is nothing (`is_change` of the answer). `data-stamp`
 *  names what says when it was looked at. */
function offer(form, meant, said) {
  const box = showAnswer(form, said, { isDryRun: true });
  form.dispatchEvent(new CustomEvent("plimsoll:previewed", { bubbles: true, detail: said }));
  const stamp = form.dataset.stamp ? { [form.dataset.stamp]: said.revision } : {};
  const seen = { ...meant, document: { ...meant.document, ...stamp } };
  const confirm = element("button", form.dataset.confirm || "Do it", "button main");
  confirm.type = "button";
  confirm.addEventListener("click", () => act(form, seen, { isDryRun: false }));
  const row = element("div", "", "act-buttons");
  if (said.document?.is_change !== false) row.append(confirm);
  row.append(leaveButton(form));
  box.append(row);
  // Who has gone on to something else meanwhile is not called back: the next key would do it.
  if (document.activeElement === document.body || form.contains(document.activeElement)) confirm.focus();
}

async function done(form, said) {
  const box = showAnswer(form, said, { isDryRun: false });
  if (form.dataset.fills && said.document?.secret) fillAddresses(form, box, said.document.secret);
  sentBy.delete(form);
  form.dispatchEvent(new CustomEvent("plimsoll:done", { bubbles: true, detail: said }));
  if (form.dataset.then) {
    const document_ = said.document ?? {};
    location.href = form.dataset.then.replace(/\{(\w+)\}/g, (_all, field) => encodeURIComponent(document_[field] ?? ""));
    return;
  }
  if (form.hasAttribute("data-reset")) form.reset();
  delete form.dataset.open;
  form.dataset.done = "";
  toast(said.heading?.split("\n")[0] || said.notes?.[0] || "Done");
  await refresh();
}

export function startActs() {
  document.addEventListener("submit", (event) => {
    const form = event.target.closest("form[data-act]");
    if (!form) return;
    event.preventDefault();
    const isPreview = event.submitter?.hasAttribute("data-preview") ?? false;
    act(form, meaning(form), { isDryRun: isPreview });
  });
  // What was previewed is not what stands in the form any more: the answer goes with the change.
  document.addEventListener("input", (event) => {
    const form = event.target.closest?.("form[data-act]");
    if (!form || form.dataset.open === "asking") return;
    delete form.dataset.done;
    leave(form);
  });
}
