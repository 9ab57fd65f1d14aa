// The modules by time, as an icicle: each as wide as its part of the one it is in.

const DEPTHS = 6;
const NARROWEST = 0.002;
const ROW = 28;
let root = null;

function newNode(path, name) {
  return { path, name, inside: new Map(), rows: [], size: 0, parent: null };
}

// Sizes are times; where none is known, bytes, which always are.
function growTree() {
  root = newNode("", data.model);
  const isTimed = machine().whole(state.kind) > 0;
  for (const row of working) {
    const size = isTimed ? timeOf(row.index) ?? 0 : row.byte;
    let node = root;
    node.size += size;
    for (const name of row.module ? row.module.split(".") : []) {
      node = childOf(node, name);
      node.size += size;
    }
    node.rows.push(row);
  }
}

function childOf(node, name) {
  let child = node.inside.get(name);
  if (!child) {
    child = newNode(node.path === "" ? name : `${node.path}.${name}`, name);
    child.parent = node;
    node.inside.set(name, child);
  }
  return child;
}

function nodeAt(path) {
  let node = root;
  for (const name of path === "" ? [] : path.split(".")) {
    node = node.inside.get(name);
    if (!node) return root;
  }
  return node;
}

function drawTree() {
  const focus = nodeAt(state.module);
  const cells = [];
  let narrow = 0;
  let depths = 1;
  const place = (node, left, width, depth) => {
    cells.push(treeCell(node, left, width, depth, focus));
    depths = Math.max(depths, depth + 1);
    let at = left;
    for (const child of node.inside.values()) {
      const part = node.size ? (width * child.size) / node.size : width / node.inside.size;
      if (depth + 1 < DEPTHS && part >= NARROWEST) place(child, at, part, depth + 1);
      else narrow += 1;
      at += part;
    }
  };
  place(focus, 0, 1, 0);
  const tree = byId("tree");
  tree.replaceChildren(...cells);
  tree.style.height = `${depths * ROW}px`;
  drawCrumbs(focus);
  const unit = machine().whole(state.kind) > 0 ? NAMES[state.kind] : "bytes (no time is known)";
  const more = narrow ? ` ${narrow} are too narrow or too deep to draw.` : "";
  byId("tree-note").textContent = `Width: share of the ${unit}. A click opens a module and filters plot and table.${more}`;
}

function treeCell(node, left, width, depth, focus) {
  const isTimed = machine().whole(state.kind) > 0;
  const amount = isTimed ? formatS(node.size) : formatByte(node.size);
  const share = formatPercent(shareIn(node.size, root.size));
  const name = node === root ? node.name : node.name || "(model)";
  const cell = make(
    "div",
    {
      role: "treeitem", class: "cell", tabindex: node === focus ? 0 : -1, "data-path": node.path,
      "aria-level": depth + 1,
      "aria-label": `${name}, ${amount}, ${share}`,
      title: `${node.path || name}\n${amount} · ${share}`,
    },
    make("span", { class: "cell-name" }, name),
    make("span", { class: "cell-share" }, width > 0.06 ? share : ""),
  );
  const group = groups.get(dominant(node));
  cell.style.left = `${100 * left}%`;
  cell.style.width = `${100 * width}%`;
  cell.style.top = `${depth * ROW}px`;
  cell.style.setProperty("--tint", group ? `var(--series-${group.colour})` : "transparent");
  return cell;
}

// The legend's group that most of the module's time belongs to gives it its tint.
function dominant(node) {
  const isTimed = machine().whole(state.kind) > 0;
  const sums = new Map();
  const add = (each) => {
    for (const row of each.rows) {
      const name = groupOf(row);
      sums.set(name, (sums.get(name) ?? 0) + (isTimed ? timeOf(row.index) ?? 0 : row.byte));
    }
    each.inside.forEach(add);
  };
  add(node);
  return [...sums].reduce((a, b) => (b[1] > a[1] ? b : a), [null, -1])[0];
}

function drawCrumbs(focus) {
  const path = [];
  for (let node = focus; node; node = node.parent) path.unshift(node);
  const crumbs = path.map((node, i) => {
    if (i === path.length - 1) return make("span", { "aria-current": "true" }, node.name);
    const crumb = make("button", { type: "button", "data-path": node.path }, node.name);
    crumb.addEventListener("click", () => change({ module: node.path }));
    return crumb;
  });
  const between = () => make("span", { class: "soft" }, " › ");
  byId("crumbs").replaceChildren(...crumbs.flatMap((crumb, i) => (i ? [between(), crumb] : [crumb])));
}

// A module once more leads back out.
function enter(path) {
  const node = nodeAt(path);
  const isFocus = path === state.module;
  change({ module: isFocus && node.parent ? node.parent.path : path });
  byId("tree").querySelector('[tabindex="0"]')?.focus({ preventScroll: true });
}

function pressTreeKey(event) {
  const cell = event.target.closest(".cell");
  if (!cell) return;
  if (event.key === "Enter" || event.key === " ") enter(cell.dataset.path);
  else if (event.key.startsWith("Arrow")) focusCell(cell, event.key);
  else return;
  event.preventDefault();
}

function focusCell(cell, key) {
  const node = nodeAt(cell.dataset.path);
  const around = node.parent ? [...node.parent.inside.values()] : [node];
  const at = around.indexOf(node);
  const target = {
    ArrowDown: [...node.inside.values()][0],
    ArrowUp: node.parent,
    ArrowRight: around[at + 1],
    ArrowLeft: around[at - 1],
  }[key];
  const cells = [...byId("tree").children];
  const found = target && cells.find((each) => each.dataset.path === target.path);
  if (!found) return;
  cell.tabIndex = -1;
  found.tabIndex = 0;
  found.focus();
}

function prepareTree() {
  const tree = byId("tree");
  tree.addEventListener("click", (event) => {
    const cell = event.target.closest(".cell");
    if (cell) enter(cell.dataset.path);
  });
  tree.addEventListener("keydown", pressTreeKey);
}
