// What colours and lines mean, each a button that hides or shows it; and the strip beside the axes.

const LINES = [
  ["hardware", "hardware ceilings", "ceiling hardware"],
  ["library", "library ceilings", "ceiling library"],
  ["other", "other data types", "ceiling hardware other"],
  ["memory", "memory levels", "diagonal"],
];

function toggled(set, name) {
  const next = new Set(set);
  if (!next.delete(name)) next.add(name);
  return next;
}

// All but `name` hidden; if they are already, all shown.
function isolated(name) {
  const others = [...groups.keys()].filter((each) => each !== name);
  const isAlone = others.every((each) => state.hidden.has(each)) && !state.hidden.has(name);
  return new Set(isAlone ? [] : others);
}

function drawLegend() {
  const whole = machine().whole(state.kind);
  const titles = { type: "Types", ceiling: "Limiters" };
  byId("legend-title").textContent = titles[state.colour] ?? "Modules";
  const keys = [...groups.values()].map((group) => make("li", {}, legendKey(group, whole)));
  byId("legend").replaceChildren(...keys);
}

function legendKey(group, whole) {
  const isShown = !state.hidden.has(group.name);
  const share = formatPercent(group.isTimed ? shareIn(group.seconds, whole) : null);
  const title = `${group.name}: click hides or shows, double click shows alone`;
  const about = { class: "key", "data-name": group.name, "aria-pressed": String(isShown), title };
  const key = keyButton(about, sample(group.colour, group.marker), group.name, share);
  key.addEventListener("click", () => {
    change({ hidden: toggled(state.hidden, group.name) });
    refocus("legend", group.name);
  });
  key.addEventListener("dblclick", () => {
    change({ hidden: isolated(group.name) });
    refocus("legend", group.name);
  });
  return key;
}

function keyButton(about, picture, name, share) {
  return make(
    "button",
    { type: "button", ...about },
    picture,
    make("span", { class: "key-name" }, name),
    make("span", { class: "key-share" }, share),
  );
}

// The list is made anew when it changes; the focus stays on what was pressed.
function refocus(list, name) {
  const keys = byId(list).querySelectorAll("button");
  [...keys].find((each) => each.dataset.name === name)?.focus();
}

function drawLineKeys() {
  const { ceilings, diagonals } = machine().given;
  const has = {
    hardware: ceilings.some((each) => each.kind === "hardware"),
    library: ceilings.some((each) => each.kind === "library"),
    other: ceilings.some((each) => !each.main),
    memory: diagonals.length > 0,
  };
  const keys = LINES.filter(([name]) => has[name]).map((line) => make("li", {}, lineKey(...line)));
  byId("lines").replaceChildren(...keys);
}

function lineKey(name, words, kind) {
  const stroke = draw("line", { x1: 1, y1: 6, x2: 21, y2: 6, class: kind });
  const box = draw("svg", { class: "sample", width: 22, height: 12, "aria-hidden": "true" }, stroke);
  const isShown = state.lines.has(name);
  const about = { class: "key", "data-name": name, "aria-pressed": String(isShown) };
  const key = keyButton(about, box, words, "");
  key.addEventListener("click", () => {
    change({ lines: toggled(state.lines, name) });
    refocus("lines", name);
  });
  return key;
}

const STRIP_ROWS = 9;

// Operators without a place on the axes, marked as such and sized by time.
function drawStrip() {
  const { aside } = picture.spots;
  const list = byId("strip");
  const shown = aside.slice(0, STRIP_ROWS);
  const rows = [];
  let why = "";
  for (const spot of shown) {
    if (spot.why !== why) rows.push(make("li", { class: "why" }, spot.why));
    why = spot.why;
    rows.push(make("li", {}, stripKey(spot)));
  }
  const more = aside.slice(STRIP_ROWS).reduce((sum, spot) => sum + spot.members.length, 0);
  if (more) rows.push(make("li", { class: "why" }, `${more} more calls`));
  list.replaceChildren(...rows);
  byId("strip-title").hidden = aside.length === 0;
}

function stripKey(spot) {
  const { colour, marker } = groups.get(spot.group);
  const isSelected = spot.members.some((row) => state.selected.has(row.index));
  const about = {
    class: `key${spot.isOn ? "" : " dim"}`,
    "aria-pressed": String(isSelected),
    "data-index": spot.members[0].index,
    "data-name": spot.name,
  };
  const mark = sample(colour, marker, Math.min(spot.radius, 11));
  const share = formatPercent(spot.seconds === null ? null : spot.share);
  const key = keyButton(about, mark, spot.name, share);
  key.addEventListener("click", () => {
    select(spot.members.map((row) => row.index), "strip");
    refocus("strip", spot.name);
  });
  key.addEventListener("pointerenter", (event) => hoverAt(spot, event));
  key.addEventListener("pointerleave", () => hoverAt(null));
  return key;
}
