// Which operators picture and table are about: search, type, what binds, module.

function prepareFilters() {
  const types = data.types.map(([place]) => [text(place), text(place)]);
  options(byId("filter-type"), [["", "all"], ...types], "");
  byId("search").addEventListener("input", ({ target }) => change({ search: target.value.trim() }));
  for (const name of ["type", "bound", "module"]) {
    byId(`filter-${name}`).addEventListener("change", ({ target }) => change({ [name]: target.value }));
  }
  byId("clear").addEventListener("click", clearFilters);
}

function clearFilters() {
  byId("search").value = "";
  change({ search: "", type: "", bound: "", module: "", hidden: new Set() });
}

function drawFilters() {
  byId("filter-type").value = state.type;
  const binders = new Set(operators.map((row) => machine().binder(row.index)));
  const order = ["compute", ...machine().given.levels, "unknown", "free"];
  const found = order.filter((each) => binders.has(each)).map((each) => [each, BINDERS[each] ?? each]);
  options(byId("filter-bound"), [["", "all but free calls"], ...found], state.bound);
  const modules = modulePaths().map((path) => [path, path]);
  options(byId("filter-module"), [["", "all"], ...modules], state.module);
}

// Two names deep, and the one that the tree went to.
function modulePaths() {
  const paths = new Set(state.module ? [state.module] : []);
  for (const { module } of working.filter((row) => row.module)) {
    const names = module.split(".");
    paths.add(names[0]).add(names.slice(0, 2).join("."));
  }
  return [...paths].sort(collator.compare);
}

// A machine may lack the level, the time or the binder that was chosen on another.
function keepWhatExists() {
  const at = machine();
  const patch = {};
  if (state.level !== "binding" && !at.given.levels.includes(state.level)) patch.level = "binding";
  if (!state.isKindChosen || !at.kinds.includes(state.kind)) patch.kind = at.given.kind;
  const isThere = operators.some((row) => at.binder(row.index) === state.bound);
  if (state.bound && !isThere) patch.bound = "";
  return patch;
}
