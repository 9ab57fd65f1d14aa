// The roofline: axes, ceilings, memory levels, ridges, and a mark for every spot.

const MARGIN = { left: 66, top: 14, bottom: 50 };
const NAMED = 10;
const svg = byId("picture");
const layers = {};
// `range` is what is in sight (null: `full`, all of it), `active` the operator that keys are at.
const picture = { range: null, full: null, x: null, y: null, frame: null, spots: null, active: null };

function prepareLayers() {
  const clip = draw("clipPath", { id: "frame" }, draw("rect"));
  svg.append(draw("defs", {}, clip));
  for (const name of ["grid", "lines", "marks", "words", "front"]) {
    layers[name] = draw("g", { class: name });
    svg.append(layers[name]);
  }
  layers.lines.setAttribute("clip-path", "url(#frame)");
  layers.marks.setAttribute("clip-path", "url(#frame)");
  const label = "Operators in the picture; arrow keys move, Enter selects, plus and minus zoom";
  const about = { role: "listbox", tabindex: 0, id: "marks", "aria-label": label };
  for (const [name, value] of Object.entries(about)) layers.marks.setAttribute(name, value);
}

// Anew after a change, or only in another place after a zoom, when the spots are the same.
function redraw(isMoved = false) {
  const width = Math.max(280, byId("canvas").clientWidth);
  const height = Math.round(Math.min(620, Math.max(360, 0.6 * width)));
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  const { left, top } = MARGIN;
  const lines = linesInSight();
  const gutter = gutterFor(lines.ceilings, width);
  const frame = { left, right: width - gutter.width, top, bottom: height - MARGIN.bottom };
  picture.frame = frame;
  if (!isMoved) {
    picture.spots = spotsNow();
    picture.full = fullRange(allPlaces(), lines);
  }
  const range = picture.range ?? picture.full;
  picture.x = new LogScale(...range.x, frame.left, frame.right);
  picture.y = new LogScale(...range.y, frame.bottom, frame.top);
  const room = new Room(frame);
  setBox(svg.querySelector("clipPath rect"), frame);
  drawGrid(frame);
  for (const spot of picture.spots.drawn) {
    spot.px = picture.x.place(spot.x);
    spot.py = picture.y.place(spot.y);
  }
  layers.words.replaceChildren();
  // The buttons for zooming stand in this corner.
  room.take({ left: frame.left, right: frame.left + 132, top: frame.top, bottom: frame.top + 34 });
  const longest = picture.spots.drawn.slice(0, 300);
  room.marks = longest.map(({ px, py, radius }) => boxAround(px, py, 0.8 * radius));
  drawLines(lines, frame, room, gutter);
  listCeilings(lines.ceilings, gutter);
  if (isMoved) moveMarks();
  else drawMarks();
  nameLongest(room);
  describePicture();
}

function moveMarks() {
  const marks = layers.marks.children;
  picture.spots.drawn.forEach((spot, number) => {
    marks[number].setAttribute("transform", placeOnPaper(spot));
  });
  ring(picture.active);
}

const placeOnPaper = (spot) => `translate(${spot.px.toFixed(1)} ${spot.py.toFixed(1)})`;

function setBox(rect, frame) {
  const [width, height] = [frame.right - frame.left, frame.bottom - frame.top];
  const box = { x: frame.left, y: frame.top, width, height };
  for (const [name, value] of Object.entries(box)) rect.setAttribute(name, value);
}

function drawMarks() {
  const marks = picture.spots.drawn.map((spot, number) => {
    const { colour, marker } = groups.get(spot.group);
    const isSelected = spot.members.some((row) => state.selected.has(row.index));
    const looks = { dim: !spot.isOn, above: spot.isAbove, selected: isSelected };
    const kind = Object.keys(looks).filter((look) => looks[look]);
    const about = {
      id: `mark-${number}`,
      class: ["mark", `series-${colour}`, ...kind].join(" "),
      d: markerPath(marker, spot.radius),
      transform: placeOnPaper(spot),
      "data-index": spot.members[0].index,
      "data-calls": spot.members.length,
    };
    const access = spot.isOn
      ? { role: "option", "aria-selected": String(isSelected), "aria-label": spot.name }
      : { "aria-hidden": "true" };
    return draw("path", { ...about, ...access });
  });
  layers.marks.replaceChildren(...marks);
  ring(picture.active);
}

function nameLongest(room) {
  const { drawn } = picture.spots;
  for (const spot of drawn.filter((each) => each.isOn).slice(0, NAMED)) {
    const words = ending(spot.name, 34);
    const isFree = ({ box }) => room.isFree(box) && !room.isOverMark(box);
    const place = placesBeside(spot, words).find(isFree);
    if (!place) continue;
    room.take(place.box);
    write(words, place.x, place.y, "name", { "text-anchor": place.anchor });
  }
}

// The spot that keys or pointer are at, by the index of one of its operators.
function ring(index) {
  picture.active = index;
  layers.front.replaceChildren();
  const number = index === null ? -1 : spotNumber(index);
  if (number < 0) {
    layers.marks.removeAttribute("aria-activedescendant");
    return null;
  }
  const spot = picture.spots.drawn[number];
  const about = { cx: spot.px, cy: spot.py, r: spot.radius + 4, class: "ring" };
  layers.front.append(draw("circle", about));
  layers.marks.setAttribute("aria-activedescendant", `mark-${number}`);
  return spot;
}

function spotNumber(index) {
  return picture.spots.drawn.findIndex((spot) => spot.members.some((row) => row.index === index));
}

function describePicture() {
  const { drawn, aside } = picture.spots;
  const on = drawn.filter((spot) => spot.isOn);
  const calls = on.reduce((sum, spot) => sum + spot.members.length, 0);
  const { ceilings, diagonals } = linesInSight();
  const words = [
    `${calls} operator calls at ${on.length} places under ${ceilings.length} ceilings and`
      + ` ${diagonals.length} memory levels; ${aside.length} kinds stand beside the axes.`,
  ];
  if (on.length) {
    const share = `${formatPercent(on[0].share)} of the ${NAMES[state.kind]}`;
    words.push(`The longest is ${on[0].name} with ${share}.`);
  }
  byId("picture-title").textContent = `Roofline of ${data.model} on ${machine().name}`;
  byId("picture-words").textContent = words.join(" ");
  byId("picture-note").textContent = remarks().join(" ");
}

// What a reader must know of these marks.
function remarks() {
  const { drawn, untimed } = picture.spots;
  const time = NAMES[state.kind];
  const words = [`A mark’s area is its share of the ${time}; calls at the same point share a mark.`];
  if (drawn.some((spot) => spot.isAbove)) {
    words.unshift("Ringed in red: faster than its eager minimum, which is an error of a count or a ceiling.");
  }
  if (untimed) {
    const who = untimed === 1 ? "1 operator has" : `${untimed} operators have`;
    words.unshift(`${who} FLOP but no point: ${time} or level is unknown.`);
  }
  return words;
}
