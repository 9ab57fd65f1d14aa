// The roof: ceilings, memory levels, the ridges where they meet, and their names.

function linesInSight() {
  const { ceilings, diagonals, main_top_flop_per_s: top } = machine().given;
  const isShown = (each) => state.lines.has(each.kind) && (each.main || state.lines.has("other"));
  return {
    ceilings: ceilings.filter(isShown),
    diagonals: state.lines.has("memory") ? diagonals : [],
    top,
  };
}

function drawLines(lines, frame, room) {
  const found = [];
  for (const each of lines.diagonals) found.push(diagonalLine(each, lines));
  for (const each of lines.ceilings) found.push(ceilingLine(each));
  layers.lines.replaceChildren(...found.filter(Boolean));
  if (lines.top !== null) drawRidges(lines, room);
  [...lines.ceilings].sort(byWeight).forEach((each) => nameCeiling(each, frame, room));
  lines.diagonals.forEach((each) => nameDiagonal(each, frame, room));
}

// Of names that hide each other, the roof's stays, then what torch reaches, then the types in use.
function byWeight(a, b) {
  const { main_top_flop_per_s: top } = machine().given;
  const isTop = (each) => each.main && each.flop_per_s === top;
  const weight = (each) => 2 * each.main + (each.kind === "library") + 2 * isTop(each);
  return weight(b) - weight(a) || b.flop_per_s - a.flop_per_s;
}

function ceilingLine(each) {
  const { x, y } = picture;
  const start = Math.max(each.start ?? 0, 10 ** x.low);
  if (start >= 10 ** x.high) return null;
  const at = y.place(each.flop_per_s);
  const kind = `ceiling ${each.kind}${each.main ? "" : " other"}`;
  const ends = { x1: x.place(start), y1: at, x2: x.place(10 ** x.high), y2: at };
  return draw("line", { ...ends, class: kind });
}

function diagonalLine(each) {
  const [x1, y1, x2, y2] = diagonalEnds(each);
  const isChosen = state.level === "binding" || state.level === each.level;
  return draw("line", { x1, y1, x2, y2, class: `diagonal${isChosen ? "" : " other"}` });
}

function diagonalEnds(each) {
  const { x, y } = picture;
  const [low, high] = [10 ** x.low, Math.min(each.cut ?? Infinity, 10 ** x.high)];
  const place = (value) => [x.place(value), y.place(value * each.byte_per_s)];
  return [...place(low), ...place(Math.max(low, high))];
}

function write(words, x, y, kind, more = {}) {
  layers.words.append(draw("text", { x, y, class: kind, ...more }, words));
}

// Above its line or below, as far right as it hides no mark; where other words stand, not at all.
function nameCeiling(each, frame, room) {
  const line = picture.y.place(each.flop_per_s);
  const start = picture.x.place(each.start ?? 10 ** picture.x.low);
  const leftmost = Math.max(start, frame.right - (each.main ? 460 : 300)) + widthOf(each.label);
  const places = [];
  for (const at of [line - 4, line + 12]) {
    // At the right edge even where the line is shorter than its name.
    for (let end = frame.right - 6; end === frame.right - 6 || end > leftmost; end -= 24) {
      places.push({ end, at, box: boxOf(each.label, end, at, "end") });
    }
  }
  const free = places.filter(({ box }) => room.isFree(box));
  const place = free.find(({ box }) => !room.isOverMark(box)) ?? free[0];
  if (!place) return;
  room.take(place.box);
  const kind = `line-name ${each.kind}${each.main ? "" : " other"}`;
  write(each.label, place.end, place.at, kind, { "text-anchor": "end" });
}

// Along its line, as far down as there is room.
function nameDiagonal(each, frame, room) {
  const [x1, y1, x2, y2] = diagonalEnds(each);
  const angle = Math.atan2(y2 - y1, x2 - x1);
  const length = Math.hypot(x2 - x1, y2 - y1);
  const words = each.label;
  for (let along = 4; along + widthOf(words) < length; along += 12) {
    const x = x1 + along * Math.cos(angle) + 5 * Math.sin(angle);
    const y = y1 + along * Math.sin(angle) - 5 * Math.cos(angle);
    if (x < frame.left || !room.takeIfFree(boxesAlong(words, x, y, angle))) continue;
    const turn = `rotate(${((angle * 180) / Math.PI).toFixed(1)} ${x.toFixed(1)} ${y.toFixed(1)})`;
    const isChosen = state.level === "binding" || state.level === each.level;
    write(words, x, y, `line-name memory${isChosen ? "" : " other"}`, { transform: turn });
    return;
  }
}

function isOffCeilings(height, { ceilings }) {
  return ceilings.every((each) => Math.abs(picture.y.place(each.flop_per_s) - (height - 4)) > 6);
}

function drawRidges(lines, room) {
  const { diagonals, top } = lines;
  const { x, y } = picture;
  for (const each of diagonals.filter(({ ridge }) => ridge !== null)) {
    const [at, height] = [x.place(each.ridge), y.place(top)];
    if (!x.holds(each.ridge) || !y.holds(top)) continue;
    layers.lines.append(
      draw("circle", { cx: at, cy: height, r: 3.5, class: "ridge" },
        draw("title", {}, `${each.level} ridge: ${formatIntensity(each.ridge)} FLOP/byte`)),
    );
    const words = `${each.level} ${formatIntensity(each.ridge)}`;
    room.take(boxAround(at, height, 4));
    const box = (place) => boxOf(words, at, place, "middle");
    const free = [height - 8, height + 16, height - 20].filter((place) => room.isFree(box(place)));
    const place = free.find((each) => isOffCeilings(each, lines)) ?? free[0];
    if (place === undefined) continue;
    room.take(box(place));
    write(words, at, place, "ridge-name", { "text-anchor": "middle" });
  }
}
