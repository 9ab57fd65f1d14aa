// The switches above the picture: machine, time, memory level, colours, light or dark.

const COLOURS = [
  ["type", "type"],
  ["module 1", "module"],
  ["module 2", "module, 2 levels"],
  ["ceiling", "ceiling"],
];

function drawControls() {
  const at = machine();
  const names = machines.map((each, i) => [String(i), each.name]);
  options(byId("machine"), names, String(state.machine));
  byId("machine-choice").hidden = machines.length < 2;
  const levels = at.given.levels.map((each) => [each, each]);
  options(byId("level"), [["binding", "limiting level"], ...levels], state.level);
  options(byId("colour"), COLOURS, state.colour);
  byId("kind").replaceChildren(make("span", {}, "Time"), ...at.kinds.map(kindButton));
  byId("machine-facts").textContent = [at.name, ...at.given.facts].join(" · ");
  for (const part of document.querySelectorAll("article[data-machine]")) {
    part.hidden = part.dataset.machine !== String(state.machine);
  }
}

function kindButton(kind) {
  const isChosen = state.kind === kind;
  const about = { type: "button", role: "radio", "data-kind": kind };
  const chosen = { "aria-checked": String(isChosen), tabindex: isChosen ? 0 : -1 };
  const button = make("button", { ...about, ...chosen }, kind === "bound" ? NAMES.bound : kind);
  button.addEventListener("click", () => chooseKind(kind));
  return button;
}

function chooseKind(kind) {
  change({ kind, isKindChosen: true });
  byId("kind").querySelector('[aria-checked="true"]').focus();
}

function pressKindKey(event) {
  const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
  if (!step) return;
  const { kinds } = machine();
  chooseKind(kinds[(kinds.indexOf(state.kind) + step + kinds.length) % kinds.length]);
  event.preventDefault();
}

function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

function drawTheme() {
  byId("theme").textContent = isDark() ? "Light" : "Dark";
}

function prepareControls() {
  const choices = {
    machine: (value) => chooseMachine(Number(value)),
    level: (value) => change({ level: value }),
    colour: (value) => change({ colour: value, hidden: new Set() }),
  };
  for (const [name, choose] of Object.entries(choices)) {
    byId(name).addEventListener("change", (event) => choose(event.target.value));
  }
  byId("kind").addEventListener("keydown", pressKindKey);
  byId("theme").addEventListener("click", () => {
    document.documentElement.dataset.theme = isDark() ? "light" : "dark";
    drawTheme();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawTheme);
  drawTheme();
}

// Every machine has lines and times of its own, so the zoom of another means nothing here.
function chooseMachine(number) {
  state.machine = number;
  picture.range = null;
  change({ machine: number, ...keepWhatExists() });
}
