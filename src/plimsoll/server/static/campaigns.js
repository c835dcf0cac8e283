// Planning a campaign from the page: what was found leads on to the plan; where there is none, nothing can be kept.

export function startPlanning(form) {
  const hasPlan = (said) => (said.document?.batches ?? []).length > 0;
  form.addEventListener("plimsoll:previewed", (event) => {
    if (hasPlan(event.detail)) return;
    queueMicrotask(() => form.querySelector("[data-answer] .act-buttons")?.remove());
  });
  form.addEventListener("plimsoll:done", (event) => {
    const said = event.detail;
    const box = form.querySelector("[data-answer]");
    if (!box || !hasPlan(said)) return;
    const link = document.createElement("a");
    link.className = "button main";
    link.href = `/campaigns/${encodeURIComponent(said.document.campaign)}`;
    link.textContent = `Open plan ${said.document.number} of ${said.document.campaign}`;
    const row = document.createElement("div");
    row.className = "act-buttons";
    row.append(link);
    box.append(row);
    link.focus();
  });
}
