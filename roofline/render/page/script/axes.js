// The axes of the picture: rules, ticks with their values, and what they are of.

function drawGrid(frame) {
  const { x, y } = picture;
  const parts = [];
  const rule = (x1, y1, x2, y2, kind) => parts.push(draw("line", { x1, y1, x2, y2, class: kind }));
  const label = (value, about) => {
    parts.push(draw("text", { ...about, "data-value": value }, formatTick(value)));
  };
  for (const at of x.between().map((value) => x.place(value))) {
    rule(at, frame.bottom, at, frame.bottom + 3, "tick");
  }
  for (const at of y.between().map((value) => y.place(value))) {
    rule(frame.left - 3, at, frame.left, at, "tick");
  }
  for (const value of x.ticks()) {
    const at = x.place(value);
    rule(at, frame.top, at, frame.bottom, "rule");
    label(value, { x: at, y: frame.bottom + 17, class: "tick-x" });
  }
  for (const value of y.ticks()) {
    const at = y.place(value);
    rule(frame.left, at, frame.right, at, "rule");
    label(value, { x: frame.left - 7, y: at + 4, class: "tick-y" });
  }
  const box = draw("rect", { class: "box" });
  setBox(box, frame);
  layers.grid.replaceChildren(...parts, box, ...axisTitles(frame));
}

function axisTitles(frame) {
  const isNarrow = frame.right - frame.left < 420;
  const level = state.level === "binding" ? "the limiting memory level" : state.level;
  const across = isNarrow ? "AI (FLOP/B)" : `arithmetic intensity (FLOP/B) at ${level}`;
  const up = `FLOP/s (FLOP / ${NAMES[state.kind]})`;
  const x = (frame.left + frame.right) / 2;
  const transform = `translate(16 ${(frame.top + frame.bottom) / 2}) rotate(-90)`;
  return [
    draw("text", { x, y: frame.bottom + 38, class: "axis" }, across),
    draw("text", { transform, class: "axis" }, up),
  ];
}
