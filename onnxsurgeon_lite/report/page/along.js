// A chart of each measure along the model.

const MOST_POINTS = 4000;
const SYMBOLS = { culprit: "star", cleared: "circle-open", region: "diamond-open" };

/** Text as plotly shows it: it reads markup. */
const inert = text => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
const css = name => getComputedStyle(document.body).getPropertyValue(name).trim();

/** What every chart looks like. */
function look(more) {
  const line = { gridcolor: css("--line"), zerolinecolor: css("--line"), linecolor: css("--line") };
  const { xaxis, yaxis, ...others } = more;
  return {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { color: css("--text"), family: "system-ui, sans-serif", size: 12 },
    margin: { l: 60, r: 16, t: 8, b: 40 }, hoverlabel: { align: "left" }, legend: { orientation: "h", y: 1.12, x: 0 },
    xaxis: { ...line, ...xaxis }, yaxis: { ...line, ...yaxis }, ...others,
  };
}
const CONFIG = { responsive: true, displaylogo: false, modeBarButtonsToRemove: ["select2d", "lasso2d", "toImage"] };

function showAlong() {
  if (!page.measures.length) { part("along").remove(); return; }
  for (const measure of page.measures) {
    const chart = make("div", { class: "chart", role: "img", "aria-label": measure.title });
    part("along").append(make("h2", {}, measure.title), chart);
    drawAlong(measure, chart);
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
      if (weighed(measure, i).weight > weighed(measure, worst).weight) worst = i;
      if (marks[measure.graph].has(measure.nodes[i])) kept.add(i);
    }
    kept.add(worst);
  }
  return [...kept].sort((a, b) => a - b);
}

function drawAlong(measure, chart) {
  const points = drawn(measure), { graph, numbers, limits } = measure;
  const positive = numbers.filter(n => n !== null && n > 0);
  const floor = measure.log ? positive.reduce((a, b) => Math.min(a, b), Infinity) / 3 : 0;
  const top = positive.reduce((a, b) => Math.max(a, b), 0) * 3;
  const height = i => (numbers[i] === null ? top : Math.max(numbers[i], floor));
  const hover = i => {
    const node = measure.nodes[i], limit = limits[i] === null ? "" : `, ${measure.limit} ${short(limits[i])}`;
    const lines = [measure.names[i], `${measure.unit} ${short(numbers[i])}${limit}`];
    if (node >= 0) lines.push(titleOf(graph, node), placeOf(graph, node));
    for (const mark of marks[graph].get(node) || []) lines.push(mark.text);
    return lines.filter(Boolean).map(line => inert(line.slice(0, 120))).join("<br>");
  };
  const trace = (name, chosen, marker, more = {}) => ({
    name, x: chosen, y: chosen.map(height), text: chosen.map(hover), hoverinfo: "text", customdata: chosen,
    type: "scatter", mode: "markers", marker, ...more,
  });
  const kind = i => (marks[graph].get(measure.nodes[i]) || []).map(m => m.kind)[0];
  const good = points.filter(i => !measure.bad[i] && !kind(i)), bad = points.filter(i => measure.bad[i] && !kind(i));
  const traces = [];
  if (measure.log) traces.push(trace("", points, {}, { mode: "lines", line: { color: css("--line"), width: 1 }, hoverinfo: "skip", showlegend: false }));
  traces.push(trace(`within ${measure.limit || "range"}`, good, { color: css("--good"), size: 6 }));
  if (bad.length) traces.push(trace(`over ${measure.limit}`, bad, { color: css("--bad"), size: 8, symbol: "x" }));
  for (const [each, symbol] of Object.entries(SYMBOLS)) {
    const chosen = points.filter(i => kind(i) === each);
    if (chosen.length) traces.push(trace(each, chosen, { color: css("--culprit"), size: 15, symbol, line: { width: 1.5, color: css("--text") } }));
  }
  if (limits.some(limit => limit !== null))
    traces.push({ name: measure.limit, x: points, y: points.map(i => limits[i] || null), mode: "lines", line: { color: css("--limit"), dash: "dot", width: 1.5 }, hoverinfo: "skip" });
  const layout = look({
    height: 280, hovermode: "closest",
    xaxis: { title: { text: "values in the order of the graph" }, zeroline: false },
    yaxis: { title: { text: measure.unit }, type: measure.log ? "log" : "linear", exponentformat: "power" },
  });
  Plotly.newPlot(chart, traces, layout, CONFIG);
  chart.on("plotly_click", event => {
    const node = measure.nodes[event.points[0].customdata];
    if (node >= 0) choose(graph, node);
  });
  document.addEventListener("chosen", () => {
    const at = choice.graph === graph ? measure.nodes.indexOf(choice.node) : -1;
    const line = { type: "line", x0: at, x1: at, yref: "paper", y0: 0, y1: 1, line: { color: css("--accent"), width: 1.5 } };
    Plotly.relayout(chart, { shapes: at < 0 || choice.node === null ? [] : [line] });
  });
}
