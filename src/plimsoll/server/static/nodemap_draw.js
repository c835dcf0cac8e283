// How a node looks: a colour and a mark for each service, so that neither is needed alone.

export function palette() {
  const style = getComputedStyle(document.documentElement);
  const get = (name) => style.getPropertyValue(name).trim();
  return {
    ink: get("--ink"), quiet: get("--ink-3"), surface: get("--surface"), focus: get("--focus"), rule: get("--rule"),
    busy: get("--hull-guaranteed"), in_service: get("--hull-assigned"), draining: get("--hull-flex"), quarantined: get("--hull-over"),
    maintenance: get("--warn"), repair: get("--hull-over"), validating: get("--hull-flex"), joining: get("--hull-out-line"),
    retired: get("--rule"), degraded: get("--warn"), font: getComputedStyle(document.body).fontFamily,
  };
}

/** One node's square. Marks: half = draining, cross = quarantined, bars = maintenance, hollow = repair, ring = validating, dot = joining. */
export function drawNode(to, kind, x, y, cell, colours, { isBusy = false, isDegraded = false } = {}) {
  const side = cell - (cell > 7 ? 2 : 1);
  const colour = colours[kind] ?? colours.quiet;
  if (kind === "in_service") {
    to.fillStyle = isBusy ? colours.busy : colour;
    to.fillRect(x, y, side, side);
    if (isDegraded) {
      to.fillStyle = colours.degraded;
      to.fillRect(x, y, Math.ceil(side / 2), Math.ceil(side / 2));
    }
    return;
  }
  const line = cell > 9 ? 2 : 1;
  to.strokeStyle = colour;
  to.fillStyle = colour;
  to.lineWidth = line;
  const half = line / 2;
  if (kind === "quarantined") {
    to.fillRect(x, y, side, side);
    if (cell > 5) {
      to.strokeStyle = colours.surface;
      to.beginPath();
      to.moveTo(x + side * 0.25, y + side * 0.25);
      to.lineTo(x + side * 0.75, y + side * 0.75);
      to.moveTo(x + side * 0.75, y + side * 0.25);
      to.lineTo(x + side * 0.25, y + side * 0.75);
      to.stroke();
    }
  } else if (kind === "draining") {
    to.strokeRect(x + half, y + half, side - line, side - line);
    to.fillRect(x, y + side / 2, side, side / 2);
  } else if (kind === "maintenance") {
    for (let at = 0; at < side; at += line * 2) to.fillRect(x + at, y, line, side);
  } else if (kind === "validating") {
    to.beginPath();
    to.arc(x + side / 2, y + side / 2, side / 2 - half, 0, Math.PI * 2);
    to.stroke();
  } else if (kind === "joining") {
    to.fillRect(x + side / 3, y + side / 3, side / 3, side / 3);
    to.strokeRect(x + half, y + half, side - line, side - line);
  } else {
    to.strokeRect(x + half, y + half, side - line, side - line);
  }
}

/** The whole map. Nodes of other kinds than `wanted`, where that is set, are pale. */
export function drawMap(to, map, plan, colours, { wanted, ratio, width }) {
  to.setTransform(ratio, 0, 0, ratio, 0, 0);
  to.clearRect(0, 0, width, plan.height);
  to.textBaseline = "alphabetic";
  for (const label of plan.labels) {
    to.font = `600 12px ${colours.font}`;
    to.fillStyle = colours.ink;
    to.fillText(label.text, label.x, label.y, label.width);
    if (plan.isFleet) continue;
    const at = to.measureText(label.text).width;
    const island = label.group.island;
    to.font = `400 11.5px ${colours.font}`;
    to.fillStyle = colours.quiet;
    to.fillText(`${island.gpus_in_service.toLocaleString("en")} of ${island.gpus.toLocaleString("en")} GPUs`, label.x + at + 8, label.y, Math.max(20, label.width - at - 8));
  }
  const { service, health, work } = map.nodes;
  const degraded = map.healths.indexOf("degraded");
  for (const [node, place] of plan.places) {
    const kind = map.services[service[node]];
    to.globalAlpha = wanted && kind !== wanted ? 0.18 : 1;
    drawNode(to, kind, place.x, place.y, plan.cell, colours, { isBusy: work[node].length > 0, isDegraded: health[node] === degraded });
  }
  to.globalAlpha = 1;
}
