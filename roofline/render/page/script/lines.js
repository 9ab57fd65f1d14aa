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

function drawLines(lines, frame, room, gutter) {
  const found = [];
  for (const each of lines.diagonals) found.push(...withReach(diagonalLine(each, lines), each));
  for (const each of lines.ceilings) found.push(...withReach(ceilingLine(each), each));
  layers.lines.replaceChildren(...found);
  if (lines.top !== null) drawRidges(lines, room);
  nameCeilings(lines.ceilings, frame, gutter);
  nameDiagonals(lines.diagonals, frame, room);
}

// A line with a wide one over it, not to be seen, so that a pointer near it is told its name.
function withReach(line, { label }) {
  if (!line) return [];
  const reach = line.cloneNode();
  reach.setAttribute("class", "reach");
  reach.append(draw("title", {}, label));
  return [line, reach];
}

function ceilingLine(each) {
  const { x, y } = picture;
  const start = Math.max(each.start_flop_per_byte ?? 0, 10 ** x.low);
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
  const [low, high] = [10 ** x.low, Math.min(each.cut_flop_per_byte ?? Infinity, 10 ** x.high)];
  const place = (value) => [x.place(value), y.place(value * each.bytes_per_s)];
  return [...place(low), ...place(Math.max(low, high))];
}

function write(words, x, y, kind, more = {}) {
  layers.words.append(draw("text", { x, y, class: kind, ...more }, words));
}

// Memory levels are parallel, so a name stands on the side where the next line is farther.
function nameDiagonals(diagonals, frame, room) {
  const order = [...diagonals].sort((a, b) => b.bytes_per_s - a.bytes_per_s);
  order.forEach((each, i) => {
    const [x1, y1, x2, y2] = diagonalEnds(each);
    const angle = Math.atan2(y2 - y1, x2 - x1);
    const apart = (other) => (other
      ? Math.abs(picture.y.perDecade * Math.log10(other.bytes_per_s / each.bytes_per_s))
        * Math.cos(angle)
      : Infinity);
    const isCrowded = apart(order[i - 1]) < LINE + 5 && apart(order[i + 1]) > apart(order[i - 1]);
    nameDiagonal(each, { angle, away: isCrowded ? -12 : 5, x1, y1, x2, y2 }, frame, room);
  });
}

// Along its line, as far down as there is room, and off the marks where that can be.
function nameDiagonal(each, { angle, away, x1, y1, x2, y2 }, frame, room) {
  const words = each.label;
  const last = Math.hypot(x2 - x1, y2 - y1) - widthOf(words);
  const places = [];
  for (let along = 4; along < last; along += 12) {
    const x = x1 + along * Math.cos(angle) + away * Math.sin(angle);
    const y = y1 + along * Math.sin(angle) - away * Math.cos(angle);
    places.push({ x, y, boxes: boxesAlong(words, x, y, angle) });
  }
  const free = places.filter(({ x, boxes }) =>
    x >= frame.left && boxes.every((box) => room.isFree(box)));
  const isOffMarks = ({ boxes }) => !boxes.some((box) => room.isOverMark(box));
  const place = free.find(isOffMarks) ?? free[0];
  if (!place) return;
  place.boxes.forEach((box) => room.take(box));
  const degrees = ((angle * 180) / Math.PI).toFixed(1);
  const transform = `rotate(${degrees} ${place.x.toFixed(1)} ${place.y.toFixed(1)})`;
  const isChosen = state.level === "binding" || state.level === each.level;
  write(words, place.x, place.y, `line-name memory${isChosen ? "" : " other"}`, { transform });
}

function isOffCeilings(height, { ceilings }) {
  return ceilings.every((each) => Math.abs(picture.y.place(each.flop_per_s) - (height - 4)) > 6);
}

function drawRidges(lines, room) {
  const { diagonals, top } = lines;
  const { x, y } = picture;
  for (const each of diagonals) {
    const ridge = each.ridge_flop_per_byte;
    if (ridge === null || !x.holds(ridge) || !y.holds(top)) continue;
    const [at, height] = [x.place(ridge), y.place(top)];
    layers.lines.append(
      draw("circle", { cx: at, cy: height, r: 3.5, class: "ridge" },
        draw("title", {}, `${each.level} ridge: ${formatIntensity(ridge)} FLOP/byte`)),
    );
    const words = `${each.level} ${formatIntensity(ridge)}`;
    room.take(boxAround(at, height, 4));
    // With a blank at both ends, so that names do not run into each other.
    const box = (place) => boxOf(` ${words} `, at, place, "middle");
    const beside = [height - 8, height + 16, height - 22, height + 30];
    const free = beside.filter((place) => room.isFree(box(place)));
    const isClear = (each) => isOffCeilings(each, lines) && !room.isOverMark(box(each));
    const place = free.find(isClear) ?? free[0];
    if (place === undefined) continue;
    room.take(box(place));
    write(words, at, place, "ridge-name", { "text-anchor": "middle" });
  }
}
