// Logarithmic axes: from values to pixels and back, and their ticks.

class LogScale {
  constructor(low, high, start, end) {
    Object.assign(this, { low: Math.log10(low), high: Math.log10(high), start, end });
  }

  get perDecade() {
    return (this.end - this.start) / (this.high - this.low);
  }

  place(value) {
    return this.start + (Math.log10(value) - this.low) * this.perDecade;
  }

  value(place) {
    return 10 ** (this.low + (place - this.start) / this.perDecade);
  }

  holds(value) {
    const power = Math.log10(value);
    return power >= this.low && power <= this.high;
  }

  // Powers of ten; 2 and 5 times them where there is room, fewer where there is none.
  ticks() {
    const room = Math.abs(this.perDecade);
    const steps = room > 110 ? [1, 2, 5] : [1];
    const stride = Math.max(1, Math.ceil(34 / room));
    const found = [];
    for (let power = Math.floor(this.low); power <= this.high; power += 1) {
      if (power % stride) continue;
      for (const step of steps) {
        const value = Number(`${step}e${power}`);
        if (this.holds(value)) found.push(value);
      }
    }
    return found.length > 1 || room < 110 ? found : this.fineTicks();
  }

  // Zoomed in so far that no two round powers are in sight.
  fineTicks() {
    const [low, high] = [10 ** this.low, 10 ** this.high];
    const step = 10 ** Math.floor(Math.log10(high - low));
    const size = (high - low) / step < 3 ? step / 2 : step;
    const found = [];
    for (let i = Math.ceil(low / size); i * size <= high; i += 1) {
      found.push(Number((i * size).toPrecision(6)));
    }
    return found;
  }

  between() {
    const found = [];
    for (let power = Math.floor(this.low); power < this.high; power += 1) {
      for (let step = 2; step < 10; step += 1) {
        const value = Number(`${step}e${power}`);
        if (this.holds(value)) found.push(value);
      }
    }
    return found;
  }
}

// The range that holds every point and ceiling, and each ridge with some room around.
function fullRange(spots, lines) {
  const ridges = lines.diagonals.map((each) => each.ridge_flop_per_byte).filter(Boolean);
  const cuts = lines.diagonals.map((each) => each.cut_flop_per_byte).filter(Boolean);
  const places = spots.map((spot) => spot.x);
  const low = least([...places, ...ridges.map((each) => each / 8)], 0.01) / 1.6;
  const high = most([...places.map((each) => 2 * each), ...cuts.map((each) => 3 * each)], 1000);
  const heights = lines.ceilings.map((each) => each.flop_per_s);
  const rates = spots.map((spot) => spot.y);
  // Points say how far down to go; without them, the start of the slowest memory's roof does.
  const starts = lines.diagonals.slice(-1).map((each) => low * each.bytes_per_s);
  const slowest = spots.length ? [] : starts;
  const bottom = least([...rates, ...heights, ...slowest], 1e9) / 1.8;
  const reached = lines.diagonals.map((each) => high * each.bytes_per_s);
  const top = 2 * most([...rates, ...heights], most(reached, 5e11));
  return { x: [low, Math.max(high, 10 * low)], y: [bottom, Math.max(top, 10 * bottom)] };
}

function least(values, otherwise) {
  return values.length ? values.reduce((a, b) => Math.min(a, b)) : otherwise;
}

function most(values, otherwise) {
  return values.length ? values.reduce((a, b) => Math.max(a, b)) : otherwise;
}
