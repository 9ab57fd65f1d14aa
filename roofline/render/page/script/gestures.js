// Zoom, pan and selection in the picture, by pointer and by keys.

const fingers = new Map();
const gesture = { from: null, range: null, moved: false, band: null, pinch: null };

// Screen to drawing: the picture may be shown smaller than it was laid out.
function placeOf(event) {
  const box = svg.getBoundingClientRect();
  const factor = svg.viewBox.baseVal.width / box.width;
  return { x: (event.clientX - box.left) * factor, y: (event.clientY - box.top) * factor };
}

function isInFrame({ x, y }) {
  const { frame } = picture;
  return x >= frame.left && x <= frame.right && y >= frame.top && y <= frame.bottom;
}

function rangeNow() {
  const { x, y } = picture;
  return { x: [10 ** x.low, 10 ** x.high], y: [10 ** y.low, 10 ** y.high] };
}

function show(range) {
  picture.range = range;
  redraw(true);
}

// Makes everything `factor` times as large; what is at the given place stays there.
function zoomAt(factor, place) {
  const { frame } = picture;
  const at = place ?? { x: (frame.left + frame.right) / 2, y: (frame.top + frame.bottom) / 2 };
  const one = (scale, value, full) => {
    const span = (scale.high - scale.low) / factor;
    const widest = 3 * Math.log10(full[1] / full[0]);
    if (span < 0.02 || span > widest) return [10 ** scale.low, 10 ** scale.high];
    const middle = Math.log10(value);
    const ends = [scale.low, scale.high].map((end) => middle + (end - middle) / factor);
    return ends.map((end) => 10 ** end);
  };
  const { x, y, full } = picture;
  show({ x: one(x, x.value(at.x), full.x), y: one(y, y.value(at.y), full.y) });
}

function panFrom(range, from, to) {
  const { x, y } = picture;
  const move = (ends, scale, pixels) => ends.map((each) => each / 10 ** (pixels / scale.perDecade));
  show({ x: move(range.x, x, to.x - from.x), y: move(range.y, y, to.y - from.y) });
}

const apart = (a, b) => Math.hypot(a.x - b.x, a.y - b.y);

// The mark that a pointer means. A large one counts as a small one in its middle, so that those that
// lie on it can be reached; if there is none, all of it counts.
function nearest(place, reach = 7) {
  let best = null;
  let distance = Infinity;
  const on = picture.spots.drawn.filter((spot) => spot.isOn);
  const away = (spot) => apart({ x: spot.px, y: spot.py }, place);
  for (const spot of on) {
    const outside = away(spot) - Math.min(spot.radius, 9);
    if (outside < reach && outside < distance) [best, distance] = [spot, outside];
  }
  return best ?? on.find((spot) => away(spot) < spot.radius) ?? null;
}

function startGesture(event) {
  const at = placeOf(event);
  if (!isInFrame(at) || event.button) return;
  fingers.set(event.pointerId, at);
  if (fingers.size === 2) {
    startPinch();
    return;
  }
  const band = event.shiftKey ? at : null;
  Object.assign(gesture, { from: at, range: rangeNow(), moved: false, band, pinch: null });
  svg.setPointerCapture(event.pointerId);
  layers.marks.focus({ preventScroll: true });
}

function followGesture(event) {
  const at = placeOf(event);
  if (!fingers.has(event.pointerId)) {
    hoverAt(isInFrame(at) ? nearest(at) : null, event);
    return;
  }
  fingers.set(event.pointerId, at);
  if (gesture.pinch) {
    followPinch();
    return;
  }
  if (!gesture.from || (!gesture.moved && apart(at, gesture.from) < 4)) return;
  gesture.moved = true;
  hoverAt(null);
  if (gesture.band) drawBand(gesture.band, at);
  else if (event.pointerType !== "touch") panFrom(gesture.range, gesture.from, at);
}

function endGesture(event) {
  if (!fingers.delete(event.pointerId)) return;
  const { from, moved, band, pinch } = gesture;
  const at = placeOf(event);
  Object.assign(gesture, { from: null, band: null, pinch: fingers.size > 1 ? pinch : null });
  if (event.type === "pointercancel" || pinch || !from) return;
  if (!moved) {
    const spot = nearest(at);
    select(spot ? spot.members.map((row) => row.index) : [], "picture");
  } else if (band) {
    zoomTo(band, at);
  }
}

const between = (a, b) => ({ x: (a.x + b.x) / 2, y: (a.y + b.y) / 2 });

function startPinch() {
  const [a, b] = [...fingers.values()];
  gesture.pinch = { range: rangeNow(), width: apart(a, b), middle: between(a, b) };
}

function followPinch() {
  const [a, b] = [...fingers.values()];
  const { range, width, middle } = gesture.pinch;
  const now = between(a, b);
  show(range);
  panFrom(range, middle, now);
  zoomAt(apart(a, b) / Math.max(width, 10), now);
}

const inOrder = (one, two) => [Math.min(one, two), Math.max(one, two)];

function drawBand(a, b) {
  const [left, right] = inOrder(a.x, b.x);
  const [top, bottom] = inOrder(a.y, b.y);
  const rect = draw("rect", { class: "band" });
  setBox(rect, { left, right, top, bottom });
  layers.front.replaceChildren(rect);
}

function zoomTo(a, b) {
  layers.front.replaceChildren();
  if (Math.abs(a.x - b.x) < 8 || Math.abs(a.y - b.y) < 8) return;
  const { x, y } = picture;
  show({ x: inOrder(x.value(a.x), x.value(b.x)), y: inOrder(y.value(a.y), y.value(b.y)) });
}

// A wheel that zooms wherever the pointer happens to be would trap readers who scroll the page.
function turnWheel(event) {
  const at = placeOf(event);
  if (!isInFrame(at)) return;
  const isMeant = event.ctrlKey || event.metaKey || document.activeElement === layers.marks;
  byId("hint").hidden = isMeant;
  if (!isMeant) return;
  event.preventDefault();
  zoomAt(1.0015 ** -event.deltaY, at);
}

const BESIDE = {
  ArrowRight: ["x", 1],
  ArrowLeft: ["x", -1],
  ArrowUp: ["y", 1],
  ArrowDown: ["y", -1],
};

function pressKey(event) {
  if (event.key in BESIDE) moveActive(...BESIDE[event.key]);
  else if (event.key === "Enter" || event.key === " ") selectActive();
  else if (event.key === "+" || event.key === "=") zoomAt(1.4);
  else if (event.key === "-") zoomAt(1 / 1.4);
  else if (event.key === "0") show(null);
  else return;
  event.preventDefault();
}

// To the next mark to the right or left, or higher or lower; at first to the longest.
function moveActive(axis, step) {
  const on = picture.spots.drawn.filter((spot) => spot.isOn);
  if (!on.length) return;
  const now = on.find((spot) => spot.members.some((row) => row.index === picture.active));
  let [next] = on;
  if (now) {
    const first = (spot) => spot.members[0].index;
    const row = [...on].sort((a, b) => a[axis] - b[axis] || first(a) - first(b));
    next = row[Math.max(0, Math.min(on.length - 1, row.indexOf(now) + step))];
  }
  if (!isInFrame({ x: next.px, y: next.py })) show(null);
  const spot = ring(next.members[0].index);
  hoverAt(spot);
}

function selectActive() {
  const number = picture.active === null ? -1 : spotNumber(picture.active);
  if (number >= 0) select(picture.spots.drawn[number].members.map((row) => row.index), "picture");
}

function prepareGestures() {
  svg.addEventListener("pointerdown", startGesture);
  svg.addEventListener("pointermove", followGesture);
  svg.addEventListener("pointerup", endGesture);
  svg.addEventListener("pointercancel", endGesture);
  svg.addEventListener("pointerleave", () => {
    hoverAt(null);
    byId("hint").hidden = true;
  });
  svg.addEventListener("wheel", turnWheel, { passive: false });
  svg.addEventListener("dblclick", (event) => {
    const at = placeOf(event);
    if (isInFrame(at)) zoomAt(2, at);
  });
  layers.marks.addEventListener("keydown", pressKey);
  layers.marks.addEventListener("blur", () => hoverAt(null));
  byId("zoom-in").addEventListener("click", () => zoomAt(1.4));
  byId("zoom-out").addEventListener("click", () => zoomAt(1 / 1.4));
  byId("zoom-reset").addEventListener("click", () => show(null));
}
