// What is known of operators, in words: at the pointer, and of those that are selected.

const card = make("div", { class: "card", id: "card", role: "tooltip", hidden: true });

// The sum of what is known of all of them; null where it is not of one.
function sumOf(members, value) {
  let sum = 0;
  for (const row of members) {
    const one = value(row.index);
    if (one === null) return null;
    sum += one;
  }
  return sum;
}

function factsOf(members) {
  const at = machine();
  const [first] = members;
  const flop = sumOf(members, (i) => operators[i].flop);
  return [
    ["Module", modulesOf(members)],
    ["Output", [first.shape, first.dtype, hasPhases && first.phase].filter(Boolean).join(" · ")],
    ["Compute", flop === null ? "FLOP unknown" : formatFlop(flop)],
    ["Bytes", formatByte(sumOf(members, (i) => operators[i].byte))],
    ...levelFacts(members, flop),
    ["Limiter", boundWords(members, at)],
    ["Eager minimum", formatS(sumOf(members, (i) => at.time("bound", i)))],
    ...(at.kinds.includes("predicted") ? [["Predicted", predictedWords(members)]] : []),
    ...(at.kinds.includes("measured") ? measuredFacts(members, flop) : []),
    ["Share", shareWords(members)],
  ];
}

function modulesOf(members) {
  const names = [...new Set(members.map((row) => row.module || "(model)"))];
  const more = names.length - 3;
  return names.slice(0, 3).join(", ") + (more > 0 ? ` and ${more} more` : "");
}

function levelFacts(members, flop) {
  const at = machine();
  const number = at.levelOf(state.level, members[0].index);
  if (number < 0) return [];
  const byte = sumOf(members, (i) => at.crossing(state.level, i));
  const level = at.given.levels[number];
  const role = state.level === "binding" ? " (limiting level)" : "";
  const intensity = flop !== null && byte ? `${formatIntensity(flop / byte)} FLOP/B` : MISSING;
  return [[`Crosses ${level}`, `${formatByte(byte)}${role}`], ["AI", intensity]];
}

function boundWords(members, at) {
  const [{ index }] = members;
  const bound = at.bound(index);
  return [bound, at.ceiling(index)].filter(Boolean).join(": ");
}

function predictedWords(members) {
  const at = machine();
  const predicted = sumOf(members, (i) => at.time("predicted", i));
  if (predicted === null) return "bound only";
  const [low, high] = [0, 1].map((end) => sumOf(members, (i) => at.interval(i)[end]));
  return `${formatInterval(predicted, low, high)} · ${at.source(members[0].index)}`;
}

function measuredFacts(members, flop) {
  const at = machine();
  const measured = sumOf(members, (i) => at.time("measured", i));
  if (!measured) return [["Measured", MISSING]];
  const iqr = members.length === 1 ? at.iqr(members[0].index) : null;
  const spread = iqr === null ? "" : `, IQR ${formatS(iqr, 2)}`;
  const bound = sumOf(members, (i) => at.time("bound", i));
  const byte = sumOf(members, (i) => operators[i].byte);
  return [
    ["Measured", formatMedian(measured, iqr) + spread],
    ["Rate", [
      flop && formatFlopRate(flop / measured),
      formatByteRate(byte / measured),
      bound !== null && `${formatPercent(bound / measured)} of the roofline`,
    ].filter(Boolean).join(" · ")],
  ];
}

function shareOf(members) {
  const whole = machine().whole(state.kind);
  const times = members.map((row) => timeOf(row.index)).filter((each) => each !== null);
  return times.length ? shareIn(times.reduce((a, b) => a + b), whole) : null;
}

function shareWords(members) {
  return `${formatPercent(shareOf(members))} of the ${NAMES[state.kind]}`;
}

function heading(members) {
  const [first] = members;
  const calls = members.length > 1 ? ` ×${members.length}` : "";
  return [make("strong", {}, `${first.op}${calls}`), make("span", { class: "soft" }, first.type)];
}

function factList(members) {
  const list = make("dl");
  for (const [name, words] of factsOf(members)) {
    list.append(make("div", {}, make("dt", {}, name), make("dd", {}, words)));
  }
  return list;
}

// Shows a spot's card beside the pointer, or beside its mark where keys are used.
function hoverAt(spot, event = null) {
  card.hidden = spot === null;
  if (spot === null) return;
  card.replaceChildren(make("p", {}, ...heading(spot.members)), factList(spot.members));
  const at = event ?? onScreen(spot);
  const box = card.getBoundingClientRect();
  const isRight = at.clientX + 18 + box.width < document.documentElement.clientWidth;
  const left = isRight ? at.clientX + 18 : Math.max(4, at.clientX - 18 - box.width);
  const top = Math.max(4, Math.min(at.clientY + 12, window.innerHeight - box.height - 4));
  card.style.left = `${left}px`;
  card.style.top = `${top}px`;
}

function onScreen(spot) {
  if (spot.px === undefined) return { clientX: 0, clientY: 0 };
  const box = svg.getBoundingClientRect();
  const factor = box.width / svg.viewBox.baseVal.width;
  return { clientX: box.left + spot.px * factor, clientY: box.top + spot.py * factor };
}

// What is selected, by picture, table or strip; `source` says which, and the others follow.
function select(indexes, source) {
  change({ selected: new Set(indexes), source });
}

function showDetails() {
  const panel = byId("details");
  const members = [...state.selected].map((i) => operators[i]);
  panel.replaceChildren();
  panel.classList.toggle("filled", members.length > 0);
  if (!members.length) return;
  const clear = make("button", { type: "button", id: "clear-selection" }, "Clear (Esc)");
  const rows = make("button", { type: "button", id: "to-table" }, "Show in the table");
  clear.addEventListener("click", () => select([], "details"));
  rows.addEventListener("click", () => goToRow(members[0].index));
  const head = make("p", {}, ...heading(members), make("span", { class: "gap" }), rows, clear);
  panel.append(head, factList(members));
}
