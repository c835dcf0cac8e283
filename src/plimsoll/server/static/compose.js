// Forms whose one list is made of several fields, such as the nodes and where they go.

/** Fields inside `data-compose="words"` are put together, in their order, into the hidden field of that name. */
function compose(part) {
  const into = part.closest("form").elements[part.dataset.compose];
  into.value = [...part.querySelectorAll("input, select")].map((field) => field.value.trim()).filter(Boolean).join(",");
}

export function startCompose(part) {
  compose(part);
  part.addEventListener("input", () => compose(part));
}
