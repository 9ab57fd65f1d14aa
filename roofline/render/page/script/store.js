// What the reader chose, and who is told when that changes.

const state = {
  machine: 0,
  kind: data.machines[0].kind,
  isKindChosen: false,
  level: "binding",
  colour: "type",
  hidden: new Set(),
  lines: new Set(["hardware", "library", "other", "memory"]),
  search: "",
  type: "",
  bound: "",
  module: "",
  selected: new Set(),
  sort: null,
};
const listeners = [];

function on(keys, listener) {
  listeners.push([keys, listener]);
}

function change(patch) {
  Object.assign(state, patch);
  const changed = Object.keys(patch);
  for (const [keys, listener] of listeners) {
    if (keys.some((key) => changed.includes(key))) listener(changed);
  }
}

const machine = () => machines[state.machine];
const timeOf = (i) => machine().time(state.kind, i);
const NAMES = { bound: "eager minimum", predicted: "predicted time", measured: "measured time" };

function isInside(path, module) {
  return module === "" || path === module || path.startsWith(`${module}.`);
}

// Whether an operator is among those that the filters leave.
function passes(row) {
  if (state.type && row.type !== state.type) return false;
  if (!isInside(row.module, state.module)) return false;
  if (state.bound !== "free" && row.state === "free") return false;
  if (state.bound && machine().binder(row.index) !== state.bound) return false;
  if (!state.search) return true;
  const words = `${row.words} ${machine().ceiling(row.index).toLowerCase()}`;
  return state.search.toLowerCase().split(/\s+/).every((word) => words.includes(word));
}

const GROUPS = {
  type: (row) => row.type,
  "module 1": (row) => row.module.split(".").slice(0, 1).join(".") || "(model)",
  "module 2": (row) => row.module.split(".").slice(0, 2).join(".") || "(model)",
  ceiling: (row) => machine().ceiling(row.index) || "no ceiling",
};
const groupOf = (row) => GROUPS[state.colour](row);

// The groups of the operators that do something, longest first, each with its look.
function groupsByTime() {
  const found = new Map();
  for (const row of working) {
    const name = groupOf(row);
    const group = found.get(name) ?? { name, seconds: 0, calls: 0, isTimed: false };
    const seconds = timeOf(row.index);
    group.isTimed ||= seconds !== null;
    group.seconds += seconds ?? 0;
    group.calls += 1;
    found.set(name, group);
  }
  const groups = [...found.values()].sort((a, b) => b.seconds - a.seconds || b.calls - a.calls);
  const looks = new Map(data.types.map(([place, ...look]) => [text(place), look]));
  groups.forEach((group, i) => {
    const spare = data.looks[i % data.looks.length];
    const [colour, marker] = state.colour === "type" ? looks.get(group.name) : spare;
    Object.assign(group, { colour, marker });
  });
  return groups;
}

let groups = new Map();
function regroup() {
  groups = new Map(groupsByTime().map((group) => [group.name, group]));
}
on(["machine", "kind", "colour"], regroup);
regroup();
