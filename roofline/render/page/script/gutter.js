// The names of ceilings: beside the frame, apart from each other, each led to its line.

const LEADER = 14;
const GUTTER = { narrowest: 16, most: 0.34, least: 620 };

// How the names stand: whole where they leave the picture two thirds, else as values alone.
function gutterFor(ceilings, width) {
  if (!ceilings.length) return { width: GUTTER.narrowest, nameOf: () => "" };
  const need = (nameOf) => Math.max(...ceilings.map((each) => widthOf(nameOf(each)))) + LEADER + 8;
  const whole = (each) => each.label;
  const value = (each) => formatFlopRate(each.flop_per_s);
  const isWhole = width >= GUTTER.least && need(whole) <= GUTTER.most * width;
  const nameOf = isWhole ? whole : value;
  return { width: need(nameOf), nameOf, isWhole };
}

function nameCeilings(ceilings, frame, gutter) {
  const { x, y } = picture;
  const inSight = ceilings.filter(({ flop_per_s: rate, start_flop_per_byte: start }) =>
    y.holds(rate) && (start ?? 0) < 10 ** x.high);
  const most = Math.floor((frame.bottom - frame.top) / LINE);
  // Of more names than there is room for, the least needed are left out.
  const named = inSight.sort(byWeight).slice(0, most);
  named.sort((a, b) => b.flop_per_s - a.flop_per_s || byWeight(a, b));
  const lines = named.map((each) => y.place(each.flop_per_s));
  const heights = spread(lines, LINE, frame.top + 5, frame.bottom - 5);
  named.forEach((each, i) => {
    const kind = `${each.kind}${each.main ? "" : " other"}`;
    const points = [[0, lines[i]], [4, lines[i]], [LEADER - 3, heights[i]]];
    const way = points.map(([right, at]) => `${frame.right + right},${at.toFixed(1)}`).join(" ");
    layers.words.append(draw("polyline", { points: way, class: `leader ${kind}` }));
    write(gutter.nameOf(each), frame.right + LEADER, heights[i] + 4, `line-name ${kind}`);
  });
}

// Of names that have no room, the roof's stays, then what torch reaches, then the types in use.
function byWeight(a, b) {
  const { main_top_flop_per_s: top } = machine().given;
  const isTop = (each) => each.main && each.flop_per_s === top;
  const weight = (each) => 2 * each.main + (each.kind === "library") + 2 * isTop(each);
  return weight(b) - weight(a) || b.flop_per_s - a.flop_per_s;
}

// Heights at least `gap` apart and as near to those `wanted`, in ascending order, as can be.
function spread(wanted, gap, low, high) {
  const groups = [];
  for (const place of wanted) {
    let group = { sum: place, count: 1 };
    for (;;) {
      const { sum, count } = group;
      const middle = sum / count - (gap * (count - 1)) / 2;
      group.start = Math.max(low, Math.min(middle, high - gap * (count - 1)));
      const above = groups.at(-1);
      if (!above || above.start + gap * above.count <= group.start) break;
      groups.pop();
      group = { sum: above.sum + sum, count: above.count + count };
    }
    groups.push(group);
  }
  return groups.flatMap(({ start, count }) =>
    Array.from({ length: count }, (_, i) => start + i * gap));
}

// Where the picture has values alone, what they are of stands beside it.
function listCeilings(ceilings, { isWhole }) {
  const shown = isWhole ? [] : [...ceilings].sort((a, b) => b.flop_per_s - a.flop_per_s);
  byId("ceilings").replaceChildren(...shown.map((each) => make("li", {}, each.label)));
}
