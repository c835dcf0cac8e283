// Charts: Vega-Lite specs that the page holds as data, drawn in the colours of the theme. The bundle is fetched once,
// when the first chart comes into view; until it is there, a chart says so. No part of a spec is compiled to code
// (`ast`): the CSP forbids it.

import { moduleFor } from "./again.js";

const COLOURS = {
  "@accent": "--accent", "@ink": "--ink", "@muted": "--ink-3", "@rule": "--rule", "@surface": "--surface",
  "@bad": "--bad", "@warn": "--warn", "@good": "--good", "@guaranteed": "--hull-guaranteed", "@assigned": "--hull-assigned",
  "@flex": "--hull-flex", "@over": "--hull-over", "@over-pale": "--hull-over-pale", "@idle": "--hull-idle-line",
  "@out": "--hull-out-line", "@band": "--hull-assigned", "@inside": "--hull-inside", "@healthy": "--hull-healthy",
};

const charts = new Set(); // those on the page: what live.js has put others in the place of is let go

function palette() {
  const style = getComputedStyle(document.documentElement);
  const get = (name) => style.getPropertyValue(name).trim();
  return { colours: Object.fromEntries(Object.entries(COLOURS).map(([key, name]) => [key, get(name)])), font: getComputedStyle(document.body).fontFamily, get };
}

function coloured(value, colours) {
  if (typeof value === "string") return colours[value] ?? value;
  if (Array.isArray(value)) return value.map((each) => coloured(each, colours));
  if (value && typeof value === "object") {
    return inUtc(Object.fromEntries(Object.entries(value).map(([key, each]) => [key, key === "values" ? each : coloured(each, colours)])));
  }
  return value;
}

/** Times of axes and tooltips are UTC, as all other times of a page. */
function inUtc(part) {
  if (typeof part.timeUnit === "string" && !part.timeUnit.startsWith("utc")) part.timeUnit = `utc${part.timeUnit}`;
  if (part.field && part.type === "temporal") part.scale = { ...part.scale, type: "utc" };
  return part;
}

function config({ get, font }) {
  const quiet = get("--ink-3");
  const rule = get("--rule");
  return {
    background: "transparent",
    font,
    view: { stroke: null },
    axis: {
      labelColor: quiet, titleColor: quiet, gridColor: rule, domainColor: get("--rule-2"), tickColor: get("--rule-2"),
      labelFontSize: 11, titleFontSize: 11.5, titleFontWeight: "normal", labelFont: font, titleFont: font, labelPadding: 5, tickSize: 4,
    },
    axisY: { domain: false, ticks: false, tickCount: 5 },
    axisX: { grid: false },
    legend: { labelColor: get("--ink-2"), titleColor: quiet, labelFontSize: 12, orient: "top", title: null, symbolSize: 90 },
    title: { color: get("--ink"), anchor: "start", fontSize: 13 },
    text: { color: get("--ink-2"), fontSize: 11.5 },
    rule: { color: get("--ink") },
    bar: { color: get("--hull-guaranteed") },
    line: { color: get("--hull-guaranteed"), strokeWidth: 1.8 },
    range: { category: [get("--hull-guaranteed"), get("--hull-flex"), get("--warn"), get("--hull-over"), get("--hull-inside"), get("--hull-assigned"), get("--hull-out-line")] },
    locale: { number: { decimal: ".", thousands: ",", grouping: [3], currency: ["", ""] } },
  };
}

/** A tooltip of our own: the bundle's brings a style sheet along, which the CSP refuses. */
function tooltip(place) {
  const box = document.createElement("div");
  box.className = "vega-tip";
  box.hidden = true;
  place.append(box);
  return (_handler, event, _item, value) => {
    if (value === null || value === undefined || value === "") {
      box.hidden = true;
      return;
    }
    const lines = typeof value === "object" ? Object.entries(value).map(([key, text]) => `${key}: ${text}`) : [String(value)];
    box.replaceChildren(...lines.map((line) => {
      const row = document.createElement("div");
      row.textContent = line;
      return row;
    }));
    box.hidden = false;
    const bounds = place.getBoundingClientRect();
    const left = event.clientX - bounds.left;
    const top = event.clientY - bounds.top;
    box.style.left = `${Math.max(0, Math.min(left + 12, bounds.width - box.offsetWidth - 4))}px`;
    box.style.top = `${top + 14 + box.offsetHeight > bounds.height ? Math.max(0, top - box.offsetHeight - 8) : top + 14}px`;
  };
}

async function draw(place, spec) {
  const theme = palette();
  const canvas = document.createElement("div");
  canvas.className = "chart-canvas";
  const whole = { $schema: "https://vega.github.io/schema/vega-lite/v6.json", width: "container", height: "container", autosize: { type: "fit", contains: "padding", resize: true }, ...coloured(spec, theme.colours), config: config(theme) };
  place.replaceChildren(canvas);
  const result = await window.vegaEmbed(canvas, whole, { actions: false, ast: true, defaultStyle: false, renderer: "canvas", tooltip: tooltip(place), mode: "vega-lite" });
  return result;
}

async function drawAgain(chart) {
  const turn = (chart.turn += 1);
  chart.drawn?.finalize();
  chart.drawn = null;
  let drawn = null;
  try {
    drawn = await draw(chart.place, chart.spec);
  } catch (error) {
    console.error(error);
    const text = document.createElement("p");
    text.className = "chart-wait";
    text.textContent = `The picture can't be drawn here; the numbers are below. ${chart.place.getAttribute("aria-label")}`;
    chart.place.replaceChildren(text);
  }
  // While it was drawn the page may have gone on without it, or the theme may have changed once more.
  if (charts.has(chart) && chart.turn === turn) chart.drawn = drawn;
  else drawn?.finalize();
}

/** A chart whose place is gone listens to nothing any more. */
function letGo() {
  for (const chart of charts) {
    if (chart.place.isConnected) continue;
    charts.delete(chart);
    chart.drawn?.finalize();
  }
}

document.addEventListener("plimsoll:swapped", letGo);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { for (const chart of charts) drawAgain(chart); });

export async function startChart(place) {
  const says = Object.assign(document.createElement("p"), { className: "chart-wait" });
  const bundle = await moduleFor(place, "./vega.js", () => {
    says.textContent = "The picture can't be drawn right now; trying again.";
    if (!says.isConnected) place.append(says);
  });
  if (!bundle || !place.isConnected) return;
  const chart = { place, spec: JSON.parse(document.getElementById(place.dataset.chart).textContent), drawn: null, turn: 0 };
  charts.add(chart);
  await drawAgain(chart);
  place.dataset.drawn = "yes";
}
