// What an element is called, so that its like is found on the fresh page when rows have come, gone or moved.

/** All of one kind by what they are called; of those that are called the same, the first, the second and so on. */
export function byName(root, tag) {
  const found = new Map();
  const counts = new Map();
  for (const element of root.querySelectorAll(tag)) {
    const name = called(element);
    const count = counts.get(name) ?? 0;
    counts.set(name, count + 1);
    found.set(`${name}\n${count}`, element);
  }
  return found;
}

export function nameOf(root, element) {
  for (const [name, each] of byName(root, element.tagName)) if (each === element) return name;
  return "";
}

/** By its own name where it has one, else by what it stands in. Ids inside of forms are numbers of rows, and no names. */
function called(element) {
  const form = element.closest("form[data-act]");
  if (element.id && !form) return element.id;
  if (element.matches("details[data-name]")) return element.dataset.name;
  const fields = form && element !== form ? [form.dataset.act, ...[...form.querySelectorAll("input[type=hidden]")].map((field) => field.value)] : [];
  const within = element.parentElement.closest("tr, li, article, details, [data-live]");
  return [within ? called(within) : "", ...fields, element.tagName, ownName(element)].join("\n");
}

function ownName(element) {
  const { live, name } = element.dataset;
  const said = live ?? name ?? element.getAttribute("href") ?? element.getAttribute("name");
  if (said) return said;
  if (element.matches("tr, li, article")) {
    const title = element.querySelector("a[href], h2, h3, h4, th, .notice-title") ?? element.querySelector("td");
    return title?.getAttribute("href") ?? title?.textContent.trim() ?? "";
  }
  if (element.matches(".table-wrap")) return unnumbered(element.querySelector("caption"));
  return element.getAttribute("aria-label") ?? unnumbered(element.matches("details") ? element.querySelector("summary") : element);
}

/** Numbers in its words change, and it is still the same. */
function unnumbered(element) {
  return element?.textContent.trim().replace(/[\d.,]+/g, "#") ?? "";
}
