// A map of nodes on a canvas: hover, tap or walk with the arrow keys; Enter opens a node; a label zooms to its island or
// cluster. What it says is also there as a summary and as a table. It is fetched anew as the page is; of what it says
// only that is put in its place which differs, and the keyboard stays where it was.

import { persist } from "./again.js";
import { byName, nameOf } from "./alike.js";
import { labelAt, layout, nodeAt, step } from "./nodemap_layout.js";
import { drawMap, drawNode, palette } from "./nodemap_draw.js";

const RELOAD_MS = 5000;
const ROWS_MAX = 200;
const ARROWS = new Set(["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown"]);
const NUMBER = new Intl.NumberFormat("en");

function make(tag, className = "", text = "") {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text) made.textContent = text;
  return made;
}

/** Say it, unless it is said already. */
function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

const shown = new WeakMap(); // element: what stands in it, as data

/** Let `draw` put what the data says into an element, unless it says that already. The keyboard stays on the same thing;
 *  where that is no more, it goes to `next`. */
function show(element, data, draw, next) {
  const said = JSON.stringify(data);
  if (shown.get(element) === said) return;
  shown.set(element, said);
  const active = element.contains(document.activeElement) ? document.activeElement : null;
  const name = active && nameOf(element, active);
  element.replaceChildren(...draw(data));
  if (active) (byName(element, active.tagName).get(name) ?? next).focus({ preventScroll: true });
}

/** A node's page; of the past that is shown, if it is. */
function pageOf(node) {
  const { asOf } = document.body.dataset;
  return `/nodes/${encodeURIComponent(node)}${asOf ? `?as_of=${encodeURIComponent(asOf)}` : ""}`;
}

function linkTo(node) {
  const link = make("a", "", node);
  link.href = pageOf(node);
  return link;
}

const words = (text) => text.replaceAll("_", " ");
const time = (seconds) => new Date(seconds * 1000).toISOString().slice(0, 16).replace("T", " ");

class NodeMap {
  constructor(place) {
    this.place = place;
    this.url = place.dataset.nodemap;
    this.only = {};
    this.wanted = "";
    this.name = ""; // of the node that is looked at: its place is another one when others have come or gone
    this.places = new Map();
    this.frame = null;
    this.loadedAt = 0;
    this.timer = 0;
  }

  build() {
    this.summary = make("p", "nodemap-summary");
    this.bar = make("div", "nodemap-bar");
    this.frame = make("div", "nodemap-frame");
    this.canvas = make("canvas", "nodemap-canvas");
    this.top = make("canvas", "nodemap-top");
    this.top.tabIndex = 0;
    this.top.setAttribute("role", "application");
    this.top.setAttribute("aria-roledescription", "map of nodes");
    this.top.setAttribute("aria-label", "Map of nodes. Arrow keys move, Enter opens a node, Z zooms to its island, Escape zooms out.");
    this.top.dataset.ownKeys = "";
    this.tip = make("div", "nodemap-tip");
    this.tip.hidden = true;
    this.says = make("p", "unseen");
    this.says.setAttribute("aria-live", "polite");
    this.frame.append(this.canvas, this.top, this.tip);
    this.behind = make("details", "behind");
    this.behind.dataset.name = "behind";
    this.title = make("summary");
    this.wrap = make("div", "table-wrap");
    this.behind.append(this.title);
    this.place.replaceChildren(this.summary, this.bar, this.frame, this.says, this.behind);
    this.listen();
  }

  /** Fetch and draw it, where it can be had. */
  async load() {
    const { answer, map } = await fetchMap(this.url);
    if (!map) return { isThere: false, answer };
    this.map = map;
    this.places = new Map(map.nodes.node.map((name, place) => [name, place]));
    this.loadedAt = Date.now();
    // Built only now, and drawn at once: until then the words that stand here are better than an empty frame.
    if (!this.frame) this.build();
    this.draw();
    this.tell();
    return { isThere: true };
  }

  /** Where the node that is looked at stands in the lists of the map; undefined if there is none. */
  get node() {
    return this.places.get(this.name);
  }

  draw() {
    const width = Math.max(240, this.frame.clientWidth);
    const ratio = Math.min(3, devicePixelRatio || 1);
    this.plan = layout(this.map, width, this.only);
    for (const canvas of [this.canvas, this.top]) {
      canvas.width = width * ratio;
      canvas.height = this.plan.height * ratio;
      canvas.style.width = `${width}px`;
      canvas.style.height = `${this.plan.height}px`;
    }
    this.colours = palette();
    this.ratio = ratio;
    drawMap(this.canvas.getContext("2d"), this.map, this.plan, this.colours, { wanted: this.wanted, ratio, width });
    this.mark();
  }

  /** The frame around the node that is looked at, and what is told of it. */
  mark() {
    const to = this.top.getContext("2d");
    to.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    to.clearRect(0, 0, this.top.width, this.top.height);
    const place = this.plan.places.get(this.node);
    this.tip.hidden = !place;
    if (!place) return;
    const side = this.plan.cell - (this.plan.cell > 7 ? 2 : 1);
    to.strokeStyle = this.colours.ink;
    to.lineWidth = 2;
    to.strokeRect(place.x - 1.5, place.y - 1.5, side + 3, side + 3);
    show(this.tip, { name: this.name, lines: this.lines(this.node) }, tipOf, this.top);
    const left = Math.min(place.x + this.plan.cell + 8, this.frame.clientWidth - this.tip.offsetWidth - 2);
    this.tip.style.left = `${Math.max(0, left)}px`;
    this.tip.style.top = `${place.y + this.plan.cell + 6}px`;
  }

  /** Everything about a node, as lines. */
  lines(node) {
    const { nodes, islands, services, healths, reasons, skus, works } = this.map;
    const island = islands[nodes.island[node]];
    const service = services[nodes.service[node]];
    const found = [`${words(service)}, ${healths[nodes.health[node]]}`];
    if (nodes.since[node] && service !== "in_service") found.push(`since ${time(nodes.since[node])} UTC`);
    if (reasons[nodes.reason[node]]) found.push(reasons[nodes.reason[node]]);
    if (service !== "in_service") found.push(nodes.back[node] ? `expected back ${time(nodes.back[node])} UTC` : "nobody said when it is back");
    found.push(`${nodes.gpus[node]} × ${skus[nodes.sku[node]]}, ${island.island}${this.plan.isFleet ? `, ${island.cluster}` : ""}`);
    const own = nodes.work[node];
    if (own.length) found.push(`runs ${own.map((place) => `${works[place].workload} (${works[place].team})`).join(", ")}`);
    else if (island.work.length && service === "in_service") {
      const [place, gpus] = island.work[0];
      const more = island.work.length > 1 ? ` and ${island.work.length - 1} more` : "";
      found.push(`in its island: ${works[place].workload} (${works[place].team}, ${NUMBER.format(gpus)} GPUs)${more}`);
    }
    return found;
  }

  look(node, { isPinned = false } = {}) {
    const name = this.map.nodes.node[node] ?? "";
    if (name === this.name && !isPinned) return;
    this.name = name;
    this.tip.classList.toggle("pinned", isPinned);
    this.mark();
    if (isPinned && name) this.says.textContent = `${name}: ${this.lines(node).join("; ")}`;
  }

  zoom(only) {
    this.only = only;
    this.name = "";
    this.draw();
    this.tell();
    this.place.scrollIntoView({ block: "nearest" });
  }

  open(node) {
    if (node !== undefined) location.href = pageOf(this.map.nodes.node[node]);
  }

  listen() {
    const at = (event) => {
      const bounds = this.top.getBoundingClientRect();
      return [event.clientX - bounds.left, event.clientY - bounds.top];
    };
    this.top.addEventListener("pointermove", (event) => {
      if (event.pointerType === "touch") return;
      const [x, y] = at(event);
      const node = nodeAt(this.plan, x, y);
      this.top.classList.toggle("points", node !== undefined || labelAt(this.plan, x, y) !== undefined);
      this.look(node);
    });
    this.top.addEventListener("pointerleave", () => { if (!this.tip.classList.contains("pinned")) this.look(undefined); });
    this.top.addEventListener("click", (event) => {
      const [x, y] = at(event);
      const label = labelAt(this.plan, x, y);
      if (label) return this.zoom(label.group.cluster ? { cluster: label.group.cluster } : { cluster: this.only.cluster, island: label.group.name });
      const node = nodeAt(this.plan, x, y);
      // A finger can't hover: its first tap tells, the link in what it tells opens.
      if (event.pointerType === "touch") return this.look(node, { isPinned: node !== undefined });
      return this.open(node);
    });
    this.top.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      if (ARROWS.has(event.key)) {
        event.preventDefault();
        this.look(step(this.plan, this.node, event.key), { isPinned: true });
      } else if (event.key === "Enter") this.open(this.node);
      else if (event.key === "z" && this.node !== undefined) {
        const island = this.map.islands[this.map.nodes.island[this.node]];
        const node = this.node;
        this.zoom(this.plan.isFleet ? { cluster: island.cluster } : { cluster: this.only.cluster, island: island.island });
        this.look(node, { isPinned: true });
      } else if (event.key === "Escape") {
        event.preventDefault();
        if (this.only.island) this.zoom(this.only.cluster ? { cluster: this.only.cluster } : {});
        else if (this.only.cluster) this.zoom({});
        this.look(undefined);
      }
    });
    this.top.addEventListener("focus", () => { if (this.node === undefined && this.top.matches(":focus-visible")) this.look(this.plan.order[0], { isPinned: true }); });
    this.top.addEventListener("blur", (event) => { if (!this.tip.contains(event.relatedTarget)) { this.tip.classList.remove("pinned"); this.look(undefined); } });
    new ResizeObserver(() => { if (this.map && this.frame.clientWidth !== this.width) { this.width = this.frame.clientWidth; this.draw(); } }).observe(this.frame);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { this.draw(); this.tell(); });
    document.addEventListener("plimsoll:refreshed", () => {
      if (!this.place.isConnected || this.timer) return;
      this.timer = setTimeout(async () => {
        await persist(this.place, () => this.load(), () => {});
        this.timer = 0;
      }, Math.max(0, this.loadedAt + RELOAD_MS - Date.now()));
    });
  }

  /** The summary, the legend, and the table behind the map. */
  tell() {
    const { nodes, services } = this.map;
    // The kind that is picked out stays when there is none of it, so that it can be let go.
    const counts = new Map(this.wanted ? [[this.wanted, 0]] : []);
    for (const node of this.plan.order) {
      const kind = services[nodes.service[node]];
      counts.set(kind, (counts.get(kind) ?? 0) + 1);
    }
    const order = services.filter((kind) => counts.has(kind));
    const text = order.map((kind) => `${NUMBER.format(counts.get(kind))} ${words(kind)}`).join(", ");
    const where = this.only.island ?? this.only.cluster ?? "";
    say(this.summary, `${where ? `${where}: ` : ""}${NUMBER.format(this.plan.count)} nodes in ${NUMBER.format(this.plan.blocks.length)} islands: ${text}.`);
    this.legend(order, counts);
    this.table();
  }

  legend(order, counts) {
    const kinds = order.map((kind) => ({ kind, count: counts.get(kind), isWanted: this.wanted === kind }));
    const { ratio, colours, only } = this;
    const buttons = () => [...(only.island || only.cluster ? [this.wayBack()] : []), ...kinds.map((each) => this.kindButton(each))];
    show(this.bar, { kinds, ratio, colours, only }, buttons, this.top);
  }

  wayBack() {
    const to = this.only.island && this.only.cluster;
    const back = make("button", "nodemap-back", to ? `← ${to}` : "← all");
    back.type = "button";
    back.dataset.name = "back";
    back.addEventListener("click", () => this.zoom(to ? { cluster: to } : {}));
    return back;
  }

  kindButton({ kind, count, isWanted }) {
    const button = make("button", "nodemap-kind");
    button.type = "button";
    button.dataset.name = kind;
    button.setAttribute("aria-pressed", String(isWanted));
    const swatch = make("canvas", "nodemap-swatch");
    swatch.width = swatch.height = 16 * this.ratio;
    const to = swatch.getContext("2d");
    to.scale(this.ratio, this.ratio);
    drawNode(to, kind, 1, 1, 16, this.colours);
    button.append(swatch, make("span", "", `${words(kind)} ${NUMBER.format(count)}`));
    button.addEventListener("click", () => {
      this.wanted = isWanted ? "" : kind;
      this.draw();
      this.tell();
    });
    return button;
  }

  table() {
    const { nodes, services, reasons, islands } = this.map;
    const out = this.plan.order.filter((node) => (this.wanted ? services[nodes.service[node]] === this.wanted : services[nodes.service[node]] !== "in_service"));
    say(this.title, `${NUMBER.format(out.length)} nodes ${this.wanted ? words(this.wanted) : "out of service"}${out.length > ROWS_MAX ? `, the first ${ROWS_MAX}` : ""}`);
    const rows = out.slice(0, ROWS_MAX).map((node) => [
      nodes.node[node], islands[nodes.island[node]].island, words(services[nodes.service[node]]), reasons[nodes.reason[node]] || "–",
      nodes.since[node] ? time(nodes.since[node]) : "–", nodes.back[node] ? time(nodes.back[node]) : "–",
    ]);
    const fill = () => {
      if (!this.behind.open) return;
      if (!this.wrap.isConnected) this.behind.append(this.wrap);
      show(this.wrap, rows, tableOf, this.title);
    };
    this.behind.ontoggle = fill;
    fill();
  }
}

/** What is told of a node: its name leads to its page. */
function tipOf({ name, lines }) {
  return [linkTo(name), ...lines.map((line) => make("div", "", line))];
}

/** The table of these rows; each begins with its node. */
function tableOf(rows) {
  const table = make("table", "table");
  table.dataset.rows = "";
  const head = table.createTHead().insertRow();
  for (const name of ["node", "island", "service", "reason", "since", "expected back"]) {
    const cell = make("th", "", name);
    cell.scope = "col";
    head.append(cell);
  }
  const body = table.createTBody();
  for (const [node, ...texts] of rows) {
    const row = body.insertRow();
    const first = make("th");
    first.scope = "row";
    first.append(linkTo(node));
    row.append(first);
    for (const text of texts) row.append(make("td", "", text));
  }
  return [table];
}

async function fetchMap(url) {
  try {
    const answer = await fetch(url, { headers: { Accept: "application/json" }, credentials: "same-origin" });
    return { answer, map: answer.ok ? await answer.json() : null };
  } catch {
    return { answer: null, map: null };
  }
}

export async function startMap(place) {
  const map = new NodeMap(place);
  const says = make("p", "quiet");
  says.setAttribute("role", "status");
  const isThere = await persist(place, () => map.load(), (isTriedAgain) => {
    says.textContent = isTriedAgain ? "The map can't be drawn right now; trying again." : "The map can't be drawn.";
    if (!says.isConnected) place.append(says);
  });
  if (isThere) place.dataset.drawn = "yes";
}
