// A chart of each measure along the model.

const MOST_POINTS = 4000;
const SYMBOLS = {
  culprit: "star", cause: "hexagram", cleared: "circle-open", region: "diamond-open", mismatch: "star", kept: "square-open", excluded: "triangle-up-open", peak: "triangle-up",
};

/** Text as plotly shows it: it reads markup. */
const inert = text => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

/** A color of the page; each is asked for once, because the browser lays out the page to answer. */
const inks = new Map();
function css(name) {
  if (!inks.has(name)) inks.set(name, getComputedStyle(document.body).getPropertyValue(name).trim());
  return inks.get(name);
}

/** What every chart looks like. */
function look(more) {
  const line = { gridcolor: css("--line"), zerolinecolor: css("--line"), linecolor: css("--line") };
  const { xaxis, yaxis, ...others } = more;
  return {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { color: css("--text"), family: "system-ui, sans-serif", size: 12 },
    margin: { l: 60, r: 16, t: 8, b: 40 }, hoverlabel: { align: "left" }, legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0 },
    xaxis: { ...line, ...xaxis }, yaxis: { ...line, ...yaxis }, ...others,
  };
}
const CONFIG = { responsive: true, displaylogo: false, showSendToCloud: false, plotlyServerURL: "", modeBarButtonsToRemove: ["select2d", "lasso2d", "toImage"] };

function showAlong() {
  if (!page.measures.length) { part("along").remove(); return; }
  const titles = [...new Set(page.measures.map(measure => measure.title))];
  const options = titles.map((title, i) => make("option", { value: i }, title));
  part("along").append(titles.length > 1
    ? make("label", { class: "heading" }, make("h2", {}, "Along the model"), make("select", { "aria-label": "What is shown", change: event => pick(Number(event.target.value)) }, ...options))
    : make("h2", {}, titles[0]));
  for (let graph = 0; graph < Math.max(1, page.graphs.length); graph++) {
    if (!measuresOf(graph).length) continue;
    const chart = make("div", { class: "chart", role: "img" });
    part("along").append(page.graphs.length > 1 ? make("h3", {}, page.graphs[graph].title) : "", chart);
    const show = () => drawAlong(measuresOf(graph)[picked], chart);
    document.addEventListener("picked", show);
    document.addEventListener("chosen", () => drawChoice(measuresOf(graph)[picked], chart));
    show();
  }
}

/** Numbers of the points that are drawn: all, or the worst of each stretch, with those that are marked. */
function drawn(measure) {
  const count = measure.nodes.length, size = Math.ceil(count / MOST_POINTS);
  if (size === 1) return measure.nodes.map((_, i) => i);
  const kept = new Set();
  for (let start = 0; start < count; start += size) {
    let worst = start;
    for (let i = start; i < Math.min(count, start + size); i++) {
      if (isWorse(measure, i, worst)) worst = i;
      if (measure.nodes[i] >= 0 && marks[measure.graph].has(measure.nodes[i])) kept.add(i);
    }
    kept.add(worst);
  }
  return [...kept].sort((a, b) => a - b);
}

function drawAlong(measure, chart) {
  const points = drawn(measure), { graph, numbers, limits } = measure;
  const known = [...numbers, ...limits].filter(n => n !== null && (n > 0 || !measure.log));
  const [bottom, top] = [known.reduce((a, b) => Math.min(a, b), Infinity), known.reduce((a, b) => Math.max(a, b), -Infinity)];
  const floor = measure.log ? bottom / 3 : Math.min(0, bottom), ceiling = measure.log ? top * 3 : top * 1.1; // for 0, and for what is no number
  const height = i => {
    if (numbers[i] !== null) return measure.log ? Math.max(numbers[i], floor) : numbers[i];
    return measure.bad[i] === (measure.worse === "high") ? ceiling : floor;
  };
  const marked = i => (measure.nodes[i] < 0 ? [] : marks[graph]?.get(measure.nodes[i]) || []);
  const hover = i => {
    const node = measure.nodes[i], limit = limits[i] === null ? "" : `, ${measure.limit} ${short(limits[i])}`;
    const lines = [measure.names[i], `${measure.unit} ${said(numbers[i], measure.bad[i])}${limit}`];
    if (node >= 0) lines.push(titleOf(graph, node), placeOf(graph, node));
    lines.push(...marked(i).map(mark => mark.text));
    return lines.filter(Boolean).map(line => inert(cut(line, 120))).join("<br>");
  };
  const trace = (name, chosen, marker, more = {}) => ({
    name, x: chosen, y: chosen.map(height), text: chosen.map(hover), hoverinfo: "text", customdata: chosen,
    type: "scatter", mode: "markers", marker, textposition: "none", ...more,
  });
  const line = (name, y, line) => ({ name, x: points, y, mode: "lines", line, hoverinfo: "skip" });
  const worst = new Map(); // node -> its point that a mark stands at
  for (const i of points) {
    const known = worst.get(measure.nodes[i]);
    if (known === undefined || isWorse(measure, i, known)) worst.set(measure.nodes[i], i);
  }
  const kind = i => (worst.get(measure.nodes[i]) === i ? marked(i).map(m => m.kind).find(k => SYMBOLS[k]) : undefined);
  const bars = measure.combine === "sum" && page.graphs.length > 0, traces = [];
  if (bars) {
    const { nodes } = shades(measure), fill = i => colors(nodes.get(measure.nodes[i])?.share || 0).fill;
    traces.push(trace("nodes", points, { color: points.map(fill), line: { width: 0 } }, { type: "bar", showlegend: false }));
  } else {
    traces.push({ ...line("", points.map(height), { color: css("--line"), width: 1 }), showlegend: false });
    const end = i => (numbers[i] === null ? said(null, measure.bad[i]) : measure.log && !numbers[i] && !measure.bad[i] ? "zero" : ""); // it has no height of its own
    const plain = points.filter(i => !kind(i)), good = plain.filter(i => !measure.bad[i] && !end(i)), bad = plain.filter(i => measure.bad[i] && !end(i));
    traces.push(trace(measure.limit ? "within the limit" : "nodes", good, { color: css("--good"), size: 6 }, { showlegend: Boolean(measure.limit) }));
    if (bad.length) traces.push(trace("beyond the limit", bad, { color: css("--bad"), size: 8, symbol: "x" }));
    for (const word of new Set(plain.map(end).filter(Boolean))) {
      const chosen = plain.filter(i => end(i) === word), isBad = measure.bad[chosen[0]];
      traces.push(trace(`${word}: at the ${height(chosen[0]) === ceiling ? "top" : "bottom"}`, chosen, { color: css(isBad ? "--bad" : "--good"), size: 6, symbol: isBad ? "x-open" : "circle-open" }));
    }
  }
  for (const [each, symbol] of Object.entries(SYMBOLS)) {
    const chosen = points.filter(i => kind(i) === each);
    if (chosen.length) traces.push(trace(KINDS[each][1], chosen, { color: css("--culprit"), size: 14, symbol, line: { width: 1.5, color: symbol.endsWith("open") ? css("--culprit") : css("--text") } }));
  }
  if (limits.some(limit => limit !== null))
    traces.push(line(measure.limit, points.map(i => limits[i] || null), { color: css("--limit"), dash: "dot", width: 1.5 }));
  // on a narrow screen the tool bar has the space above the points, and the legend is below them
  const narrow = { margin: { l: 60, r: 16, t: 34, b: 40 }, legend: { orientation: "h", y: -0.25, yanchor: "top", x: 0 } };
  const layout = look({
    ...(chart.clientWidth < 600 ? narrow : {}),
    height: chart.clientWidth < 500 ? 360 : 280, hovermode: "closest", bargap: 0.15, shapes: shapesOf(measure),
    xaxis: { title: { text: page.graphs.length ? "in the order of the graph" : "in the order of the set" }, zeroline: false, ...(points.length < 12 ? { dtick: 1 } : {}) },
    yaxis: { title: { text: measure.unit }, type: measure.log ? "log" : "linear", exponentformat: "power" },
  });
  chart.setAttribute("aria-label", measure.title);
  Plotly.react(chart, traces, layout, CONFIG);
  chart.removeAllListeners("plotly_click");
  chart.on("plotly_click", event => {
    const node = measure.nodes[event.points[0].customdata];
    if (node >= 0) choose(graph, node);
  });
}

/** A line at the chosen node: at the worst of its points. */
function shapesOf(measure) {
  const own = choice.node !== null && choice.graph === measure.graph ? measure.nodes.flatMap((node, i) => (node === choice.node ? [i] : [])) : [];
  const at = own.reduce((worst, i) => (worst < 0 || isWorse(measure, i, worst) ? i : worst), -1);
  return at < 0 ? [] : [{ type: "line", x0: at, x1: at, yref: "paper", y0: 0, y1: 1, line: { color: css("--accent"), width: 1.5 } }];
}

/** Draw that line in a chart, unless it is there. */
function drawChoice(measure, chart) {
  const shapes = shapesOf(measure), [drawn, wanted] = [chart.layout.shapes || [], shapes].map(each => each.map(shape => shape.x0).join());
  if (drawn !== wanted) Plotly.relayout(chart, { shapes });
}
