// The shapes of points: every marker covers the same area at the same radius.

const POLYGONS = {
  s: [4, 45, 1], D: [4, 0, 1], d: [4, 0, 1], "^": [3, 0, 1], v: [3, 180, 1], "<": [3, 270, 1],
  ">": [3, 90, 1], p: [5, 0, 1], h: [6, 0, 1], H: [6, 30, 1], 8: [8, 22.5, 1], "*": [5, 0, 0.45],
};

function markerPath(marker, radius) {
  if (marker === "o") return circle(radius);
  if (marker === "P" || marker === "X" || marker === "x") return cross(marker, radius);
  const [sides, turn, waist] = POLYGONS[marker];
  const points = waist < 1 ? star(sides, turn, waist) : polygon(sides, turn);
  const narrow = marker === "d" ? 0.6 : 1;
  return closed(scaledToArea(points.map(([x, y]) => [narrow * x, y]), radius));
}

function circle(radius) {
  const r = radius.toFixed(2);
  return `M${r},0A${r},${r} 0 1 1 -${r},0A${r},${r} 0 1 1 ${r},0Z`;
}

function polygon(sides, turn) {
  return Array.from({ length: sides }, (_, i) => spoke(turn + (360 * i) / sides, 1));
}

function star(sides, turn, waist) {
  const length = (i) => (i % 2 ? waist : 1);
  return Array.from({ length: 2 * sides }, (_, i) => spoke(turn + (180 * i) / sides, length(i)));
}

function spoke(degrees, length) {
  const angle = (degrees * Math.PI) / 180;
  return [length * Math.sin(angle), -length * Math.cos(angle)];
}

function cross(marker, radius) {
  const arm = marker === "x" ? 0.22 : 0.36;
  const [a, b] = [1, arm];
  const points = [
    [-b, -a], [b, -a], [b, -b], [a, -b], [a, b], [b, b],
    [b, a], [-b, a], [-b, b], [-a, b], [-a, -b], [-b, -b],
  ];
  if (marker === "P") return closed(scaledToArea(points, radius));
  const turn = Math.SQRT1_2;
  return closed(scaledToArea(points.map(([x, y]) => [turn * (x - y), turn * (x + y)]), radius));
}

function scaledToArea(points, radius) {
  const area = points.reduce((sum, [x, y], i) => {
    const [nextX, nextY] = points[(i + 1) % points.length];
    return sum + (x * nextY - nextX * y) / 2;
  }, 0);
  const factor = radius * Math.sqrt(Math.PI / Math.abs(area));
  return points.map(([x, y]) => [factor * x, factor * y]);
}

function closed(points) {
  return `M${points.map(([x, y]) => `${x.toFixed(2)},${y.toFixed(2)}`).join("L")}Z`;
}

// A small picture of a group's mark, for lists.
function sample(colour, marker, radius = 5) {
  const size = 2 * Math.ceil(radius * 1.35) + 2;
  const viewBox = `${-size / 2} ${-size / 2} ${size} ${size}`;
  return draw(
    "svg",
    { class: "sample", width: size, height: size, viewBox, "aria-hidden": "true" },
    draw("path", { d: markerPath(marker, radius), class: `mark series-${colour}` }),
  );
}
