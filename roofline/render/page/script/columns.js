// The columns of the table of operators: what sorts them, and what they say.

const nothing = (value) => value ?? -1;

function columnsNow() {
  const at = machine();
  const level = state.level === "binding" ? "limiting level" : `crosses ${state.level}`;
  const number = (id, title, value, form) => ({ id, title, value, form, isNumber: true });
  const time = (kind, title, form) => number(kind, title, (row) => at.time(kind, row.index), form);
  const intensityTitle = state.level === "binding" ? "limiting AI" : `AI (${state.level})`;
  const intensity = (row) => at.intensity(state.level, row.index);
  const words = (id, title, value) => ({ id, title, value, form: (each) => each });
  const isIn = (kind, columns) => (at.kinds.includes(kind) ? columns : []);
  return [
    words("op", "operator", (row) => row.op),
    words("module", "module", (row) => row.module || "(model)"),
    number("share", "share", (row) => shareOf([row]), formatPercent),
    words("type", "type", (row) => row.type),
    ...(hasPhases ? [words("phase", "phase", (row) => row.phase)] : []),
    words("shape", "output", (row) => row.shape),
    number("flop", "FLOP", (row) => row.flop, formatFlop),
    number("byte", "bytes", (row) => row.byte, formatByte),
    number("crossing", level, (row) => at.crossing(state.level, row.index), crossingWords),
    number("intensity", intensityTitle, intensity, formatIntensity),
    words("ceiling", "limiter", (row) => at.ceiling(row.index) || MISSING),
    time("bound", "eager min", (value) => formatS(value)),
    ...isIn("predicted", [time("predicted", "predicted", predictedCell)]),
    ...isIn("measured", [
      time("measured", "measured", (value, row) => formatMedian(value, at.iqr(row.index))),
      number("iqr", "IQR", (row) => at.iqr(row.index), (value) => formatS(value, 2)),
      number("roof", "efficiency", roofShare, formatPercent),
    ]),
    ...(state.kind === "bound" ? [] : [
      number("gap", "above min", gapOf, (seconds) => formatS(seconds, 2)),
    ]),
  ];
}

function crossingWords(byte, row) {
  if (byte === null) return MISSING;
  if (state.level !== "binding") return formatByte(byte);
  const at = machine();
  return `${at.given.levels[at.levelOf("binding", row.index)]} ${formatByte(byte)}`;
}

function predictedCell(predicted, row) {
  if (predicted === null) return row.state === "free" ? MISSING : "bound only";
  return formatInterval(predicted, ...machine().interval(row.index));
}

function roofShare(row) {
  const [bound, measured] = ["bound", "measured"].map((kind) => machine().time(kind, row.index));
  return bound !== null && measured ? bound / measured : null;
}

// Seconds of the chosen kind beyond the eager minimum: at most what a better kernel could save.
function gapOf(row) {
  const [bound, seconds] = ["bound", state.kind].map((kind) => machine().time(kind, row.index));
  return bound === null || seconds === null || seconds < bound ? null : seconds - bound;
}

// Rows in the order that was asked for; at first the longest, or else the most bytes.
function sortedRows(rows, columns) {
  const chosen = state.sort && columns.find((column) => column.id === state.sort.column);
  if (!chosen) {
    const time = (row) => timeOf(row.index) ?? 0;
    return [...rows].sort((a, b) => time(b) - time(a) || b.byte - a.byte || a.index - b.index);
  }
  const sign = state.sort.isDown ? -1 : 1;
  const keys = new Map(rows.map((row) => [row, chosen.value(row)]));
  const compare = chosen.isNumber
    ? (a, b) => nothing(keys.get(a)) - nothing(keys.get(b))
    : (a, b) => collator.compare(keys.get(a), keys.get(b));
  return [...rows].sort((a, b) => sign * compare(a, b) || a.index - b.index);
}

const collator = new Intl.Collator("en", { numeric: true });
