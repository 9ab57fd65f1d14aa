// What the page was given: operators in columns, the same for all machines, and the machines.

const data = JSON.parse(byId("data").textContent);
const text = (place) => (place === null ? "" : data.strings[place]);
// Kinds of time, and the columns that hold them; the bound is the eager minimum.
const TIMES = { bound: "eager_min_time_s", predicted: "predicted_s", measured: "measured_s" };
const count = data.operators.op.length;

const operators = Array.from({ length: count }, (_, index) => {
  const named = (column) => text(data.operators[column][index]);
  const row = {
    index,
    op: named("op"),
    type: named("type"),
    module: named("module"),
    phase: named("phase"),
    state: named("state"),
    shape: named("shape"),
    dtype: named("dtype"),
    flop: known(data.operators.flop, index),
    byte: data.operators.traffic_bytes[index],
  };
  row.words = [row.op, row.type, row.module || "(model)", row.shape, row.dtype, row.phase]
    .join(" ").toLowerCase();
  return row;
});
const working = operators.filter((row) => row.state !== "free");
const hasPhases = working.some((row) => row.phase !== "forward");

function known(column, index) {
  return column === null ? null : column[index];
}

// One machine, asked for an operator by its index.
class Machine {
  constructor(given) {
    this.given = given;
    this.name = given.name;
    this.above = new Set(given.above);
    this.kinds = Object.keys(TIMES).filter((kind) => given[TIMES[kind]] !== null);
    this.sums = {};
  }

  time(kind, i) {
    return known(this.given[TIMES[kind]], i);
  }

  interval(i) {
    return [known(this.given.predicted_low_s, i), known(this.given.predicted_high_s, i)];
  }

  iqr(i) {
    return known(this.given.measured_iqr_s, i);
  }

  source(i) {
    return text(known(this.given.source, i));
  }

  ceiling(i) {
    return text(this.given.ceiling[i]);
  }

  bound(i) {
    return text(this.given.bound[i]);
  }

  // The number of the level that counts: the chosen one, or that which binds the operator.
  levelOf(level, i) {
    return level === "binding" ? this.given.level[i] : this.given.levels.indexOf(level);
  }

  crossing(level, i) {
    const number = this.levelOf(level, i);
    return number < 0 ? null : this.given.level_bytes[number][i];
  }

  intensity(level, i) {
    const byte = this.crossing(level, i);
    const { flop } = operators[i];
    return flop !== null && byte ? flop / byte : null;
  }

  // FLOP/s: what the bound lets it attain (less than its FLOP over its bound where the convention
  // counts FLOP that a kernel may leave out), else its FLOP over its time.
  rate(kind, i) {
    if (kind === "bound") return known(this.given.attainable_flop_per_s, i);
    const seconds = this.time(kind, i);
    const { flop } = operators[i];
    return flop !== null && seconds ? flop / seconds : null;
  }

  // What binds an operator, in a word: "compute", or the memory level.
  binder(i) {
    const bound = this.bound(i);
    return bound === "memory" ? this.given.levels[this.given.level[i]] : bound;
  }

  // Added up once: every row of the table asks for it.
  whole(kind) {
    this.sums[kind] ??= working.reduce((sum, { index }) => sum + (this.time(kind, index) ?? 0), 0);
    return this.sums[kind];
  }
}

const machines = data.machines.map((given) => new Machine(given));
