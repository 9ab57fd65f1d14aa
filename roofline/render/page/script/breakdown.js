// Where the time goes: bars by type, by what binds, and by phase where there are several.

const BINDERS = { compute: "compute", unknown: "unknown FLOP", free: "free" };

function sumsBy(key) {
  const sums = new Map();
  for (const row of working) {
    const name = key(row);
    const sum = sums.get(name) ?? { name, seconds: 0, calls: 0, unknown: 0 };
    const seconds = timeOf(row.index);
    sum.seconds += seconds ?? 0;
    sum.unknown += seconds === null ? 1 : 0;
    sum.calls += 1;
    sums.set(name, sum);
  }
  return [...sums.values()].sort((a, b) => b.seconds - a.seconds);
}

function drawBars() {
  const byBound = sumsBy((row) => machine().binder(row.index));
  const overhead = machine().given.overhead_s[state.kind];
  const between = { name: "between operators", seconds: overhead, isBetween: true };
  const charts = [
    barsOf("By type", sumsBy((row) => row.type), "type"),
    barsOf("By limiter", overhead === undefined ? byBound : [...byBound, between], "bound"),
  ];
  if (hasPhases) charts.push(barsOf("By phase", sumsBy((row) => row.phase), null));
  byId("bars").replaceChildren(...charts);
  byId("minimum").textContent = `Minimum times of the pass: ${machine().given.minimum}`;
  byId("time-title").textContent = `Shares of the ${NAMES[state.kind]}`;
}

function barsOf(title, sums, filter) {
  const whole = machine().whole(state.kind);
  const longest = most(sums.map((sum) => sum.seconds), 0);
  const rows = sums.map((sum) => bar(sum, { whole, longest, filter }));
  const unknown = sums.reduce((count, sum) => count + (sum.unknown ?? 0), 0);
  const some = unknown ? `Time of ${unknown} operators unknown, not in sums.` : "";
  const words = whole ? some : "No times: this machine has no ceilings.";
  const list = make("ul", { class: "keys" }, ...rows);
  const note = make("p", { class: "soft" }, words);
  return make("div", { class: "chart" }, make("h3", {}, title), list, note);
}

// What is not known is no 0, and what is known of some operators is a least.
function knownPart({ calls, unknown }, words) {
  if (!unknown) return words;
  return unknown === calls ? MISSING : `≥ ${words}`;
}

function bar(sum, { whole, longest, filter }) {
  const name = filter === "bound" ? BINDERS[sum.name] ?? sum.name : sum.name;
  const share = sum.isBetween ? "outside" : formatPercent(shareIn(sum.seconds, whole));
  const fill = make("span", { class: `fill${sum.isBetween ? " between" : ""}` });
  fill.style.width = `${longest ? (100 * sum.seconds) / longest : 0}%`;
  const cells = [
    make("span", { class: "bar-name" }, name),
    make("span", { class: "track" }, fill),
    make("span", { class: "bar-time" }, knownPart(sum, formatS(sum.seconds))),
    make("span", { class: "bar-share" }, knownPart(sum, share)),
  ];
  const about = { class: "bar", "data-name": sum.name };
  if (filter === null || sum.isBetween) return make("li", {}, make("div", about, ...cells));
  return make("li", {}, barButton(about, cells, filter, sum.name));
}

function barButton(about, cells, filter, name) {
  const isChosen = state[filter] === name;
  const pressed = { type: "button", "aria-pressed": String(isChosen), title: "Only these operators" };
  const button = make("button", { ...about, ...pressed }, ...cells);
  button.addEventListener("click", () => {
    change({ [filter]: isChosen ? "" : name });
    refocus("bars", name);
  });
  return button;
}
