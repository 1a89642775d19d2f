// Numbers as text and as colors.

const VIRIDIS = ["#440154", "#482878", "#3e4989", "#31688e", "#26828e", "#1f9e89", "#35b779", "#6ece58", "#b5de2b", "#fde725"];

/** A number with few digits. */
function short(number) {
  if (number === null || number === undefined) return "-";
  if (typeof number === "string") return number;
  if (Number.isInteger(number) && Math.abs(number) < 1e6) return String(number);
  const size = Math.abs(number);
  return size >= 1e-3 && size < 1e5 ? String(Number(number.toPrecision(4))) : number.toExponential(2);
}

/** The color of a share from 0 to 1, and that of text on it. */
function colors(share) {
  const place = Math.min(0.9999, Math.max(0, share)) * (VIRIDIS.length - 1), low = Math.floor(place);
  const parts = [0, 1, 2].map(i => {
    const [a, b] = [low, low + 1].map(n => parseInt(VIRIDIS[n].slice(1 + 2 * i, 3 + 2 * i), 16));
    return Math.round(a + (b - a) * (place - low));
  });
  const light = 0.299 * parts[0] + 0.587 * parts[1] + 0.114 * parts[2] > 130;
  return { fill: `rgb(${parts.join(",")})`, text: light ? "#111" : "#fff" };
}

/** What a measure says of each node and module: {number, share, text, bad}; a share of 1 is the worst. */
function shades(measure) {
  const g = page.graphs[measure.graph];
  const nodes = new Map(), modules = new Map();
  measure.nodes.forEach((node, i) => {
    if (node < 0) return;
    const said = weighed(measure, i);
    combine(nodes, node, said, measure);
    for (let module = g.node_module[node]; module >= 0; module = g.modules[module].parent)
      combine(modules, module, said, measure);
  });
  const all = measure.combine === "sum" ? [...nodes.values()] : measure.numbers.map((_, i) => weighed(measure, i));
  const span = range(all.map(each => each.weight), measure);
  for (const found of [nodes, modules]) for (const each of found.values()) each.share = span(each.weight);
  return { nodes, modules, ends: span.ends };
}

/** A number of a measure as it is compared with others: an error as a multiple of what is allowed. */
function weighed(measure, i) {
  const number = measure.numbers[i], limit = measure.limits[i], bad = measure.bad[i];
  const [best, worst] = measure.worse === "low" ? [Infinity, -Infinity] : [0, Infinity];
  const weight = number === null ? (bad ? worst : best) : limit && measure.log ? number / limit : number;
  return { number, weight, bad };
}

/** Whether a number of a measure is worse than another. */
function isWorse(measure, i, j) {
  const [one, other] = [i, j].map(n => weighed(measure, n).weight);
  return measure.worse === "low" ? one < other : one > other;
}

/** The number as text; where there is none it is not finite, or there is no error. */
const said = (number, bad) => (number !== null ? short(number) : bad ? "not finite" : "exact");

/** The measure that is drawn, of those of each graph: several are chosen from. */
let picked = 0;
const measuresOf = graph => page.measures.filter(measure => measure.graph === graph);
function pick(number) {
  picked = number;
  document.dispatchEvent(new CustomEvent("picked"));
}

function combine(found, key, said, measure) {
  const known = found.get(key);
  if (!known) found.set(key, { ...said });
  else {
    if (measure.combine === "sum") { known.number += said.number; known.weight += said.weight; }
    else if (measure.combine === "max" ? said.weight > known.weight : said.weight < known.weight) {
      known.number = said.number; known.weight = said.weight;
    }
    known.bad = known.bad || said.bad;
  }
}

/** A function from weights to shares. */
function range(weights, measure) {
  const usable = weights.filter(w => Number.isFinite(w) && (!measure.log || w > 0));
  let low = measure.combine === "sum" ? 0 : Infinity, high = -Infinity;
  for (const w of usable) { low = Math.min(low, w); high = Math.max(high, w); }
  if (!usable.length) [low, high] = [measure.log ? 1e-3 : 0, 1];
  if (measure.log && measure.limit) [low, high] = [1e-3, 1e3]; // the same colors on every page: what is allowed is in the middle
  else if (measure.log) low = Math.max(low, high / 1e6) || 1e-12;
  const scale = measure.log ? Math.log10 : w => w;
  const share = w => {
    if (w >= high) return 1;
    if (w <= low) return 0;
    return high > low ? (scale(w) - scale(low)) / (scale(high) - scale(low)) : w > 0 ? 1 : 0;
  };
  const span = measure.worse === "low" ? w => 1 - share(w) : share;
  span.ends = [low, high];
  return span;
}
