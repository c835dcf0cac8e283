// The proof of the ledger on the audit page: asked for by a button, for it reads every event.

function line(tag, text, className = "") {
  const made = document.createElement(tag);
  made.textContent = text;
  if (className) made.className = className;
  return made;
}

function tell(box, tone, title, lines) {
  const notice = line("div", "", `notice ${tone}`);
  notice.append(line("p", title, "notice-title"), ...lines.map((text) => line("p", text)));
  box.replaceChildren(notice);
}

/** Ask for the proof: it reads every event, so it takes a while, and says so. */
async function verify(form) {
  const box = document.querySelector("[data-verdict]");
  const button = form.querySelector("button");
  const head = form.elements.head.value.trim();
  button.disabled = true;
  box.hidden = false;
  box.replaceChildren(document.getElementById("verify-wait").content.cloneNode(true));
  const begun = Date.now();
  try {
    const answer = await fetch(form.action + (head ? `?head=${encodeURIComponent(head)}` : ""), { headers: { Accept: "application/json" }, credentials: "same-origin" });
    const said = await answer.json();
    const seconds = (Date.now() - begun) / 1000;
    const took = seconds < 0.1 ? "Proved a moment ago" : `Proved in ${seconds.toFixed(1)} seconds`;
    if (!answer.ok) tell(box, "warn", said.error?.message ?? `The server answered ${answer.status}.`, said.error?.next_step ? [`Next: ${said.error.next_step}`] : []);
    else if (said.whole) tell(box, "good", `Whole: ${said.events.toLocaleString("en")} events, each sealed to the one before.`, [`${took}${head ? ", and it continues the head that you gave" : ""}. Head ${said.head}`]);
    else {
      const lines = said.findings.slice(0, 10).map((each) => `Revision ${each.revision}: ${each.message}`);
      const more = said.findings.length + said.unlisted - lines.length;
      if (more > 0) lines.push(`and ${more.toLocaleString("en")} more`);
      tell(box, "bad", `Not whole: it breaks at ${said.findings.length ? `revision ${said.findings[0].revision}` : "an unknown place"}.`, [...lines, "Next: compare with a copy, or with heads that were kept elsewhere."]);
    }
  } catch {
    tell(box, "warn", "The server did not answer.", ["Next: try again. Nothing was changed."]);
  }
  button.disabled = false;
}

export function startVerify(form) {
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    verify(form);
  });
}
