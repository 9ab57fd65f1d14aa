// Words in the picture: each where it hides no other, or left out.

const LINE = 13;
const ruler = document.createElement("canvas").getContext("2d");
const widths = new Map();

// How wide words are in the picture, in pixels, in whatever font the reader has.
function widthOf(words) {
  if (!widths.has(words)) {
    ruler.font = `11px ${getComputedStyle(document.body).fontFamily}`;
    widths.set(words, ruler.measureText(words).width);
  }
  return widths.get(words);
}

class Room {
  constructor(frame) {
    this.frame = frame;
    this.taken = [];
    this.marks = [];
  }

  isOverMark(box) {
    return this.marks.some((each) => overlap(each, box));
  }

  isFree(box) {
    const { frame } = this;
    if (box.left < frame.left || box.right > frame.right) return false;
    if (box.top < frame.top || box.bottom > frame.bottom) return false;
    return !this.taken.some((each) => overlap(each, box));
  }

  take(box) {
    this.taken.push(box);
  }

  takeIfFree(boxes) {
    if (!boxes.every((box) => this.isFree(box))) return false;
    boxes.forEach((box) => this.take(box));
    return true;
  }
}

function overlap(a, b) {
  return a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
}

function boxAround(x, y, radius) {
  return { left: x - radius, right: x + radius, top: y - radius, bottom: y + radius };
}

// A box of words whose baseline starts, or ends, at x.
function boxOf(words, x, y, anchor = "start") {
  const width = widthOf(words);
  const left = x - { start: 0, middle: width / 2, end: width }[anchor];
  return { left, right: left + width, top: y - LINE + 3, bottom: y + 3 };
}

// Small boxes along words that stand on a slope, of which one large box would claim too much.
function boxesAlong(words, x, y, angle) {
  const steps = Math.ceil(widthOf(words) / 8);
  return Array.from({ length: steps + 1 }, (_, i) => {
    const along = (i / steps) * widthOf(words);
    return boxAround(x + along * Math.cos(angle), y + along * Math.sin(angle), 6);
  });
}

// Where a point's name may stand: right, left, above, below.
function placesBeside(spot, words) {
  const away = spot.radius + 4;
  return [
    [spot.px + away, spot.py + 4, "start"],
    [spot.px - away, spot.py + 4, "end"],
    [spot.px, spot.py - away - 1, "middle"],
    [spot.px, spot.py + away + 9, "middle"],
  ].map(([x, y, anchor]) => ({ x, y, anchor, box: boxOf(words, x, y, anchor) }));
}
