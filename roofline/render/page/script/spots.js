// Operators as points: calls on the same spot taken together, as charts/points.py does.

const SAME_SPOT = 0.01;
const SMALLEST = 3.2;
const WHOLE = 27;

const radiusOf = (share) => Math.max(SMALLEST, WHOLE * Math.sqrt(share));
const cell = (value) => Math.round(Math.log10(value) / SAME_SPOT);

// { drawn, aside, untimed }: what has a place on the axes, what stands beside them and why, and how
// many operators have FLOP but no time of the chosen kind.
function spotsNow() {
  const at = machine();
  const whole = at.whole(state.kind);
  const drawn = new Map();
  const aside = new Map();
  let untimed = 0;
  for (const row of working) {
    const group = groupOf(row);
    if (state.hidden.has(group)) continue;
    const x = at.intensity(state.level, row.index);
    const y = at.rate(state.kind, row.index);
    const isOn = passes(row);
    const why = reasonAside(row, at);
    if (why) {
      gather(aside, [why, row.op, row.type, isOn], row, { why, isOn, group });
    } else if (x && y) {
      const key = [row.op, row.type, row.phase, row.shape, group, isOn, cell(x), cell(y)];
      gather(drawn, key, row, { isOn, group });
    } else {
      untimed += 1;
    }
  }
  const marks = [...drawn.values()].map((spot) => placed(spot, at, whole));
  const others = [...aside.values()].map((spot) => timed(spot, whole));
  // The largest are drawn first, under the others.
  return { drawn: marks.sort((a, b) => b.share - a.share), aside: others.sort(bySpareness), untimed };
}

// Where every operator stands, hidden or not: what the axes hold does not depend on the legend.
function allPlaces() {
  const at = machine();
  return working
    .map(({ index }) => ({ x: at.intensity(state.level, index), y: at.rate(state.kind, index) }))
    .filter(({ x, y }) => x && y);
}

function reasonAside(row, at) {
  if (row.flop === null) return "FLOP unknown";
  if (row.flop === 0) return "no FLOP";
  const isNearer = state.level !== "binding" && at.crossing(state.level, row.index) === 0;
  return isNearer ? `nothing crosses ${state.level}` : "";
}

function gather(spots, key, row, about) {
  const name = JSON.stringify(key);
  const spot = spots.get(name);
  if (spot) spot.members.push(row);
  else spots.set(name, { ...about, members: [row] });
}

// Intensities and rates of calls taken together are those of their sums.
function placed(spot, at, whole) {
  const sum = (value) => spot.members.reduce((total, row) => total + value(row), 0);
  const flop = sum((row) => row.flop);
  spot.x = flop / sum((row) => row.flop / at.intensity(state.level, row.index));
  spot.y = flop / sum((row) => row.flop / at.rate(state.kind, row.index));
  spot.isAbove = state.kind === "measured" && spot.members.some((row) => at.above.has(row.index));
  return timed(spot, whole);
}

function timed(spot, whole) {
  const times = spot.members.map((row) => timeOf(row.index)).filter((each) => each !== null);
  spot.seconds = times.length ? times.reduce((a, b) => a + b) : null;
  spot.share = whole && times.length ? spot.seconds / whole : 0;
  spot.radius = radiusOf(spot.share);
  // The longest call gives its name to the spot.
  spot.members.sort((a, b) => (timeOf(b.index) ?? 0) - (timeOf(a.index) ?? 0));
  spot.name = nameOf(spot);
  return spot;
}

function bySpareness(a, b) {
  return (a.why !== "FLOP unknown") - (b.why !== "FLOP unknown") || b.share - a.share;
}

const inModule = new Map();
for (const row of working) inModule.set(row.module, (inModule.get(row.module) ?? 0) + 1);

function nameOf(spot) {
  const [{ op, module }] = spot.members;
  if (spot.why) return spot.members.length > 1 ? `${op} ×${spot.members.length}` : op;
  const isAlone = inModule.get(module) === 1;
  const name = module === "" ? op : isAlone ? ending(module) : `${ending(module)} ${op}`;
  return spot.members.length > 1 ? `${name} ×${spot.members.length}` : name;
}

// The end of a long path, which tells modules apart.
function ending(path, most = 28) {
  return path.length <= most ? path : `…${path.slice(-most + 1)}`;
}
