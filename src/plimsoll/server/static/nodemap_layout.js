// Where each node of a map lies: pure geometry. Islands are blocks of squares, clusters are groups of islands.

const LABEL = 18;
const ISLAND_GAP = 10;
const GROUP_GAP = 18;

/** The side of a node's square, with its gap, by how many there are and how wide the place is. */
function cellSize(count, width) {
  const wide = count <= 250 ? 20 : count <= 900 ? 16 : count <= 2600 ? 12 : count <= 7000 ? 8 : 6;
  return width < 560 ? Math.max(5, Math.min(wide, Math.floor(width / 24))) : wide;
}

/** Blocks of the islands that are shown, left to right and down. `only` may name a cluster or an island. */
export function layout(map, width, only) {
  const members = map.islands.map(() => []);
  map.nodes.node.forEach((_name, place) => members[map.nodes.island[place]].push(place));
  const shown = map.islands
    .map((island, place) => ({ ...island, place, members: members[place] }))
    .filter((island) => (!only.cluster || island.cluster === only.cluster) && (!only.island || island.island === only.island));
  const count = shown.reduce((sum, island) => sum + island.members.length, 0);
  const cell = cellSize(count, width);
  const clusters = new Set(shown.map((island) => island.cluster));
  const isFleet = clusters.size > 1;
  // A cluster's islands stand in columns of one width; a fleet's clusters are as wide as they are.
  const abreast = Math.max(1, Math.min(shown.length, Math.round(width / 310)));
  const column = (width - GROUP_GAP * (abreast - 1)) / abreast;
  const wide = (sizes) => sizes.reduce((sum, size) => sum + size.width + ISLAND_GAP / 2, 0);
  const blocks = [];
  const labels = [];
  let x = 0;
  let y = 0;
  let rowHeight = 0;
  for (const group of groups(shown, isFleet)) {
    const sizes = group.islands.map((island) => shape(island.members.length, cell, isFleet ? width : column, isFleet));
    const groupWidth = isFleet ? Math.max(64, wide(sizes)) : Math.floor(column);
    if (x > 0 && x + groupWidth > width + 1) {
      x = 0;
      y += rowHeight + GROUP_GAP;
      rowHeight = 0;
    }
    labels.push({ x, y: y + LABEL - 5, text: group.name, width: groupWidth, group });
    let inner = x;
    let top = y + LABEL;
    let height = 0;
    group.islands.forEach((island, place) => {
      const size = sizes[place];
      if (inner > x && inner + size.width > width) {
        inner = x;
        top += height + ISLAND_GAP / 2;
        height = 0;
      }
      blocks.push({ x: inner, y: top, columns: size.columns, rows: size.rows, island });
      inner += size.width + ISLAND_GAP / 2;
      height = Math.max(height, size.height);
    });
    rowHeight = Math.max(rowHeight, top + height - y);
    x += groupWidth + GROUP_GAP;
  }
  const places = new Map();
  for (const block of blocks) {
    block.island.members.forEach((node, at) => {
      places.set(node, { x: block.x + (at % block.columns) * cell, y: block.y + Math.floor(at / block.columns) * cell, block, at });
    });
  }
  return { cell, blocks, labels, places, count, isFleet, height: y + rowHeight + 4, order: [...places.keys()] };
}

function groups(islands, isFleet) {
  if (!isFleet) return islands.map((island) => ({ name: island.island, islands: [island], island }));
  const found = new Map();
  for (const island of islands) {
    if (!found.has(island.cluster)) found.set(island.cluster, { name: island.cluster, islands: [], cluster: island.cluster });
    found.get(island.cluster).islands.push(island);
  }
  return [...found.values()];
}

function shape(count, cell, width, isFleet) {
  const most = Math.max(1, Math.floor(width / cell));
  const columns = isFleet ? Math.min(most, Math.max(1, Math.ceil(Math.sqrt(count * 1.3)))) : most;
  const rows = Math.ceil(count / columns);
  return { columns, rows, width: columns * cell, height: rows * cell };
}

/** The node under a point; undefined between them. */
export function nodeAt(plan, x, y) {
  for (const block of plan.blocks) {
    const column = Math.floor((x - block.x) / plan.cell);
    const row = Math.floor((y - block.y) / plan.cell);
    if (column < 0 || row < 0 || column >= block.columns || row >= block.rows) continue;
    return block.island.members[row * block.columns + column];
  }
  return undefined;
}

/** The label under a point: what to zoom to. */
export function labelAt(plan, x, y) {
  return plan.labels.find((label) => x >= label.x && x <= label.x + label.width && y >= label.y - LABEL + 4 && y <= label.y + 5);
}

/** The node that an arrow key leads to. */
export function step(plan, node, key) {
  const here = plan.places.get(node);
  if (!here) return plan.order[0];
  const { block, at } = here;
  const size = block.island.members.length;
  const column = at % block.columns;
  const to = { ArrowLeft: at - 1, ArrowRight: at + 1, ArrowUp: at - block.columns, ArrowDown: at + block.columns }[key];
  if (to >= 0 && to < size && !(key === "ArrowRight" && column === block.columns - 1) && !(key === "ArrowLeft" && column === 0)) return block.island.members[to];
  const place = plan.blocks.indexOf(block) + (key === "ArrowRight" || key === "ArrowDown" ? 1 : -1);
  const next = plan.blocks[Math.max(0, Math.min(plan.blocks.length - 1, place))];
  return next === block ? node : next.island.members[key === "ArrowRight" || key === "ArrowDown" ? 0 : next.island.members.length - 1];
}
