// Numbers as text: the formats of roofline/core/units.py, digit for digit.

const MISSING = "–";
const DECIMAL = [["P", 1e15], ["T", 1e12], ["G", 1e9], ["M", 1e6], ["k", 1e3], ["", 1]];
const SECONDS = [["s", 1], ["ms", 1e-3], ["µs", 1e-6], ["ns", 1e-9]];

// JavaScript rounds what is exactly half away from zero, Python to the even digit.
function halfToEven(exact, kept, away) {
  const tail = exact.slice(kept).replace("e", " ").split(" ")[0].replace(".", "");
  if (!/^50*$/.test(tail)) return away;
  const last = exact[kept - 1] === "." ? exact[kept - 2] : exact[kept - 1];
  return Number(last) % 2 ? away : null;
}

function exponential(value, decimals) {
  const exact = value.toExponential(60);
  const kept = exact.indexOf(".") + (decimals ? decimals + 1 : 1);
  const away = halfToEven(exact, kept, value.toExponential(decimals));
  if (away !== null) return away;
  return exact.slice(0, kept).replace(/\.$/, "") + exact.slice(exact.indexOf("e"));
}

function fixed(value, decimals) {
  const exact = value.toFixed(decimals + 60 > 100 ? 100 : decimals + 60);
  const kept = exact.indexOf(".") + (decimals ? decimals + 1 : 1);
  const away = halfToEven(exact, kept, value.toFixed(decimals));
  return away === null ? exact.slice(0, kept).replace(/\.$/, "") : away;
}

function digits(value, count) {
  if (value === 0) return "0";
  const rounded = Number(exponential(value, count - 1));
  const power = Math.floor(Math.log10(Math.abs(rounded)) + 1e-12);
  return rounded.toFixed(Math.max(0, count - 1 - power));
}

function formatSi(value, unit, count = 3) {
  if (value === null) return MISSING;
  const [prefix, factor] = DECIMAL.find(
    // 999.6 with three digits prints as 1000: it belongs to the next prefix.
    ([, each]) => Math.abs(value) >= each * (1 - 0.5 * 10 ** -count) || each === 1,
  );
  const whole = !prefix && Number.isInteger(value);
  const number = whole ? value.toFixed(0) : digits(value / factor, count);
  return `${number} ${prefix}${unit}`.trimEnd();
}

const formatFlop = (flop) => formatSi(flop, "FLOP");
const formatFlopRate = (rate) => formatSi(rate, "FLOP/s");
const formatByte = (byte) => formatSi(byte, "B");
const formatByteRate = (rate) => formatSi(rate, "B/s");
const formatIntensity = (value) => (value === null ? MISSING : digits(value, 3));

function formatS(seconds, count = 3) {
  if (seconds === null) return MISSING;
  for (const [unit, factor] of SECONDS) {
    if (seconds >= factor * (1 - 0.5 * 10 ** -count)) {
      return `${digits(seconds / factor, count)} ${unit}`;
    }
  }
  return seconds === 0 ? "0 s" : `${digits(seconds / 1e-9, count)} ns`;
}

function formatPercent(fraction) {
  if (fraction === null) return MISSING;
  if (fraction <= 0 || fraction >= 1) return `${fixed(100 * fraction, 0)} %`;
  const percent = 100 * fraction;
  if (percent >= 99.95) return "> 99.9 %";
  return percent < 0.05 ? "< 0.1 %" : `${digits(percent, percent >= 10 ? 3 : 2)} %`;
}

// A part of a whole; null where there is none. Sums that were added in another order must not show
// as more than all.
function shareIn(part, whole) {
  return whole ? Math.min(1, Number((part / whole).toFixed(12))) : null;
}

// How many digits a time has that is spread by that fraction of it: as in reports/spreads.py.
function digitsOf(spread) {
  if (spread <= 0) return 4;
  return Math.max(2, Math.min(4, 1 + Math.floor(-Math.log10(spread))));
}

function roundedAt(value, place) {
  if (place >= 0) return fixed(value, place);
  return (Number(fixed(value * 10 ** place, 0)) / 10 ** place).toFixed(0);
}

function formatInterval(predicted, low, high) {
  if (predicted === null) return MISSING;
  if (!predicted || low === null || high === null) return formatS(predicted, 2);
  const count = digitsOf((high - low) / predicted);
  const [number, unit] = formatS(predicted, count).split(" ");
  const place = count - 1 - Math.floor(Math.log10(Number(number)));
  const factor = SECONDS.find(([name]) => name === unit)[1];
  const ends = [low, high].map((each) => roundedAt(each / factor, place));
  return `${number} (${ends[0]}–${ends[1]}) ${unit}`;
}

function formatMedian(measured, iqr) {
  if (!measured || iqr === null) return formatS(measured);
  return formatS(measured, digitsOf(iqr / measured));
}

function formatTick(value) {
  if (value >= 1000) return formatSi(value, "", 1);
  return value >= 1e-6 ? value.toFixed(10).replace(/\.?0+$/, "") : exponential(value, 0);
}
