// Tensors: what was computed, what it should be, and how they differ.

function showTensors() {
  if (!page.tensors.length) { part("tensors").remove(); return; }
  const list = make("div", { class: "chips", role: "tablist", "aria-label": "Tensors" }), view = make("div", { id: "tensor" });
  const buttons = page.tensors.map(tensor => make("button", { type: "button", class: "chip", role: "tab", click: () => { pick(tensor); if (tensor.node >= 0) choose(tensor.graph, tensor.node); } }, tensor.name));
  const pick = tensor => {
    page.tensors.forEach((each, i) => buttons[i].setAttribute("aria-selected", String(each === tensor)));
    showTensor(tensor, view);
  };
  list.append(...buttons);
  part("tensors").append(make("h2", {}, "Tensors"), list, view);
  pick(page.tensors[0]);
  document.addEventListener("chosen", () => {
    const found = page.tensors.find(tensor => tensor.node === choice.node && tensor.graph === choice.graph);
    if (found) pick(found);
  });
}

function showTensor(tensor, view) {
  const pictures = [["actual", tensor.actual], ["reference", tensor.reference], ["difference", tensor.difference]].filter(([, picture]) => picture);
  const frames = pictures.map(([name, picture]) => make("figure", {}, make("figcaption", {}, `${name}, ${short(picture.low)} to ${short(picture.high)}${bytesOf(picture).includes(255) ? "; red is not finite" : ""}`), make("div", { class: "picture", role: "img", "aria-label": `${name} of ${tensor.name}` })));
  const histogram = make("div", { class: "picture", role: "img", "aria-label": `Histogram of ${tensor.name}` });
  const table = tensor.worst.length ? worst(tensor.worst) : null;
  view.replaceChildren(
    make("p", {}, make("b", { class: "code" }, tensor.name), ` ${tensor.says}`), tensor.shown ? make("p", { class: "dim" }, tensor.shown) : "",
    make("div", { class: "pictures" }, ...frames, tensor.histogram ? make("figure", {}, make("figcaption", {}, "histogram"), histogram) : "", table || ""));
  pictures.forEach(([name, picture], i) => drawPicture(picture, frames[i].lastChild, name === "difference" ? "Cividis" : "Viridis"));
  if (tensor.histogram) drawHistogram(tensor.histogram, histogram);
}

const bytesOf = picture => Uint8Array.from(atob(picture.pixels), c => c.charCodeAt(0));

/** A picture; what is not finite is red. */
function drawPicture(picture, frame, colorscale) {
  const bytes = bytesOf(picture), { width, height, low, high } = picture;
  const rows = (number, from = bytes) => Array.from({ length: height }, (_, y) => Array.from(from.subarray(y * width, (y + 1) * width), number));
  const trace = (z, more) => ({ type: "heatmap", z, ...more });
  const traces = [trace(rows(b => (b > 253 ? null : low + (high - low) * (b / 253))), { colorscale, zmin: low, zmax: high, colorbar: { thickness: 8, len: 1, exponentformat: "power" }, hovertemplate: "%{z:.4g}<extra></extra>" })];
  if (bytes.includes(255)) traces.push(trace(rows(b => (b === 255 ? 1 : null)), { colorscale: [[0, "#e00"], [1, "#e00"]], showscale: false, hovertemplate: "not finite<extra></extra>" }));
  const square = Math.max(width, height) / Math.min(width, height) < 6;
  const hidden = { visible: false, fixedrange: false };
  Plotly.newPlot(frame, traces, look({ height: 240, margin: { l: 4, r: 4, t: 4, b: 4 }, xaxis: { ...hidden, constrain: "domain" }, yaxis: { ...hidden, autorange: "reversed", ...(square ? { scaleanchor: "x", constrain: "domain" } : {}) } }), { ...CONFIG, displayModeBar: false });
}

function drawHistogram({ edges, actual, reference }, frame) {
  const middles = edges.slice(1).map((edge, i) => (edge + edges[i]) / 2);
  const side = (name, y, color, shape) => ({ name, x: middles, y, type: "scatter", mode: "lines", line: { shape: "hvh", color, dash: shape, width: 2 }, fill: shape ? "none" : "tozeroy" });
  const traces = [];
  if (actual.length) traces.push(side("actual", actual, css("--bad"), ""));
  if (reference.length) traces.push(side("reference", reference, css("--good"), "dash"));
  Plotly.newPlot(frame, traces, look({ height: 240, margin: { l: 48, r: 4, t: 4, b: 28 }, yaxis: { type: "log", title: { text: "elements" } } }), { ...CONFIG, displayModeBar: false });
}

function worst(elements) {
  const row = each => make("tr", {}, ...[`[${each.index.join(", ")}]`, short(each.actual), short(each.reference), short(each.difference)].map(text => make("td", {}, text)));
  return make("figure", {}, make("figcaption", {}, "elements that differ most"), make("table", {}, make("thead", {}, make("tr", {}, ...["index", "actual", "reference", "off by"].map(text => make("th", { scope: "col" }, text)))), make("tbody", {}, ...elements.map(row))));
}
