// The graph: one module at a time, what it holds as boxes; a click opens a module or chooses a node.

const BOX = { width: 172, height: 44, column: 192, row: 100 };
const KINDS = { // how a mark is drawn: never by color alone
  culprit: ["\u2716", "culprit"], cause: ["\u2691", "named by the cause"], region: ["\u25c7", "one of several"], cleared: ["\u25cb", "cleared"], added: ["+", "added"],
  removed: ["\u2212", "removed"], changed: ["\u2260", "changed"], kept: ["\u25a3", "kept in float"], excluded: ["!", "excluded"],
  mismatch: ["\u2717", "mismatch"], peak: ["\u25b2", "peak"], asked: ["\u25cf", "asked for"], unmatched: ["?", "without a partner"], fused: ["", "fused"],
};
const views = [];

function showGraphs() {
  if (!page.graphs.length) { part("model").remove(); return; }
  part("model").classList.toggle("sides", page.graphs.length > 1);
  page.graphs.forEach((_, graph) => views.push(new View(graph)));
  views.forEach(view => view.show()); // each has its width now
  document.addEventListener("chosen", event => views.forEach(view => view.follow(event.detail.near)));
}

/** One graph: the module that is open, what colors it, how large it is drawn. */
class View {
  constructor(graph) {
    Object.assign(this, { graph, g: page.graphs[graph], open: 0, near: null, zoom: 1 });
    this.shade();
    this.path = make("nav", { class: "path", "aria-label": "Where in the model" });
    this.area = make("div", { class: "area", keydown: event => this.key(event) });
    this.legend = make("div", { class: "legend" });
    const button = (text, label, act) => make("button", { type: "button", "aria-label": label, title: label, click: act }, text);
    this.tools = make("div", { class: "tools" },
      button("\u2212", "Smaller", () => this.scale(0.8)), button("+", "Larger", () => this.scale(1.25)));
    part("graphs").append(make("div", { class: "graph" },
      make("div", { class: "bar" }, make("h2", {}, page.graphs.length > 1 ? `${"AB"[graph]}: ${this.g.title}` : "The graph"), this.tools),
      this.path, this.area, this.legend));
    document.addEventListener("picked", () => { this.shade(); this.show(); });
  }

  /** Take the colors from the measure that is picked. */
  shade() {
    this.measure = measuresOf(this.graph)[picked];
    this.shades = this.measure ? shades(this.measure) : null;
  }

  /** Open the neighborhood of the chosen node, or the module that it is in, unless it is in view. */
  follow(near) {
    const node = this.chosen();
    if (node === undefined) { this.outline(); return; }
    const closeUp = this.g.close_ups.find(each => each.node === node);
    const holder = this.g.node_module[node];
    if ((closeUp && near) || !this.shown.has(`node ${node}`)) this.enter(holder, closeUp);
    this.outline();
    const box = this.shown.get(`node ${node}`);
    if (box) this.reveal(box);
  }

  /** The chosen node, or the same one of the other model. */
  chosen() {
    if (choice.node === null) return undefined;
    return choice.graph === this.graph ? choice.node : partners[choice.graph].get(choice.node);
  }

  enter(module, near = null) {
    this.step(module, near);
    if (!near) this.lead();
  }

  step(module, near) {
    const boxes = this.g.modules[module].drawing.boxes; // one module alone is opened at once
    if (!near && boxes.length && boxes.filter(([kind]) => kind !== "in" && kind !== "out").length === 1) {
      const [kind, number] = boxes.find(([kind]) => kind !== "in" && kind !== "out");
      if (kind === "module" && this.open !== number) return this.step(number, null);
    }
    Object.assign(this, { open: module, near });
    this.show();
  }

  /** Draw what is open. */
  show() {
    const drawing = (this.near || this.g.modules[this.open]).drawing || this.near.drawing;
    const layout = this.g.layouts[drawing.layout];
    const least = Math.min(0, ...layout.x, ...layout.bends.flat().map(b => b[0])), right = Math.max(0, ...layout.x, ...layout.bends.flat().map(b => b[0])), bottom = Math.max(0, ...layout.y);
    this.size = [(right - least) * BOX.column + BOX.width + 24, bottom * BOX.row + BOX.height + 24];
    const place = (x, y) => [(x - least) * BOX.column + BOX.width / 2 + 12, y * BOX.row + BOX.height / 2 + 12];
    const svg = this.svg = draw("svg", { role: "group", "aria-label": "Boxes and lines" });
    svg.append(draw("defs", {}, draw("marker", { id: `tip${this.graph}`, viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 9, markerHeight: 9, markerUnits: "userSpaceOnUse", orient: "auto-start-reverse" }, draw("path", { d: "M0 0L8 4L0 8z", class: "tip" }))));
    this.fans = new Map(); // box -> its lines down
    for (const [from] of drawing.lines) this.fans.set(from, (this.fans.get(from) || 0) + 1);
    this.spots = []; // of labels
    const labels = [], open = this.near || drawing.boxes.length <= 24;
    drawing.lines.forEach((line, i) => this.line(svg, labels, line, layout, i, place, open));
    svg.append(...labels);
    this.shown = new Map();
    drawing.boxes.forEach(([kind, number], i) => {
      const box = this.box(kind, number, place(layout.x[i], layout.y[i]));
      this.shown.set(`${kind} ${number}`, box);
      svg.append(box);
    });
    const focused = [this.area, this.path].some(each => each.contains(document.activeElement)), left = this.drawn;
    const seen = { drawing: this.seen, left: this.area.scrollLeft, top: this.area.scrollTop };
    this.area.replaceChildren(svg);
    if (focused) { // a keyboard stays in the graph: at what was left, at what is chosen, or at the start
      const names = [`module ${left}`, `node ${this.g.doors.get(left)}`, `node ${this.chosen()}`];
      (names.map(name => this.shown.get(name)).find(Boolean) || svg.querySelector(".box"))?.focus({ preventScroll: true });
    }
    this.drawn = this.open;
    this.scale(1);
    this.first(seen, drawing);
    this.showPath();
    this.showLegend();
    this.outline();
  }

  line(svg, labels, [from, to, values], layout, i, place, open) {
    const ends = [from, to].map(box => place(layout.x[box], layout.y[box]));
    const down = ends[0][1] <= ends[1][1] ? 1 : -1;
    const points = [[ends[0][0], ends[0][1] + down * BOX.height / 2], ...layout.bends[i].map(b => place(...b)), [ends[1][0], ends[1][1] - down * (BOX.height / 2 + 2)]];
    let path = `M${points[0]}`;
    for (let n = 1; n < points.length; n++) {
      const middle = (points[n - 1][1] + points[n][1]) / 2;
      path += `C${points[n - 1][0]} ${middle} ${points[n][0]} ${middle} ${points[n]}`;
    }
    const carries = values.some(value => reached[this.graph].has(value));
    const said = values.map(value => `${this.g.values[value]}  ${typeOf(this.graph, value)}`);
    svg.append(draw("path", { d: path, class: carries ? "line reached" : "line", "marker-end": `url(#tip${this.graph})` }, draw("title", {}, said.join("\n"))));
    if (!open) return;
    const types = cut([...new Set(values.map(value => typeOf(this.graph, value)))].join(", "), 26);
    const name = values.length > 1 ? `${values.length} values` : this.near ? middle(this.g.values[values[0]], 24) : "";
    const width = 6 * Math.max(name.length, types.length), lies = ([x, y]) => this.spots.some(([u, v, w]) => Math.abs(x - u) < (width + w) / 2 && Math.abs(y - v) < 24);
    const spot = spotsOf(points, this.fans.get(from) > 1).find(each => !lies(each));
    if (!spot) return; // upon each other no two can be read; the line's own title says it
    const [x, y] = spot;
    this.spots.push([x, y, width]);
    labels.push(draw("text", { x, y: y - (name && types ? 3 : -3), class: "edge" }, name || types));
    if (name && types) labels.push(draw("text", { x, y: y + 9, class: "edge type" }, types));
  }

  box(kind, number, [x, y]) {
    const { width, height } = BOX, said = this.saidOf(kind, number);
    const opens = kind === "module" ? number : kind === "node" ? this.g.opens.get(number) : undefined;
    const go = () => {
      if (kind === "node") choose(this.graph, number);
      if (opens !== undefined) this.enter(opens);
      else if (kind !== "node") this.goTo(kind, number);
    };
    const box = draw("g", {
      class: ["box", kind, ...said.kinds, said.reached ? "reached" : ""].filter(Boolean).join(" "), transform: `translate(${x - width / 2} ${y - height / 2})`,
      tabindex: 0, role: "button", "aria-label": said.label, click: go, keydown: event => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); go(); } },
    });
    Object.assign(box.dataset, { kind, number, x, y });
    const rectangle = draw("rect", { width, height, rx: kind === "node" ? 6 : kind === "module" ? 12 : 22 });
    if (said.colors) rectangle.style.fill = said.colors.fill;
    box.append(draw("title", {}, said.label), rectangle);
    const ink = said.colors ? said.colors.text : "var(--text)";
    if (opens !== undefined) box.append(draw("rect", { x: 3, y: 3, width: width - 6, height: height - 6, rx: kind === "node" ? 4 : 9, class: "inner", style: said.colors && `stroke:${ink}` }));
    const lines = [[said.first, 18, "first"], [said.second, 34, "second"]];
    for (const [text, dy, name] of lines) if (text) box.append(draw("text", { x: width / 2, y: said.second ? dy : 26, class: name, style: `fill:${ink}` }, text));
    if (said.sign) box.append(draw("circle", { cx: width - 4, cy: 4, r: 10, class: "badge" }), draw("text", { x: width - 4, y: 8, class: "badge" }, said.sign));
    return box;
  }

  /** What a box says, in words, signs and colors. */
  saidOf(kind, number) {
    const { g, graph } = this;
    if (kind === "in" || kind === "out")
      return { first: middle(g.values[number], 18), second: cut(typeOf(graph, number), 26), kinds: [], label: `${kind === "in" ? "comes in" : "goes out"}: ${g.values[number]} ${typeOf(graph, number)}`, reached: reached[graph].has(number) };
    const shade = this.shades && (kind === "node" ? this.shades.nodes : this.shades.modules).get(number);
    const held = (kind === "node" ? within : inside)[graph].get(number) || [], at = (kind === "node" && marks[graph].get(number)) || [];
    const own = [...at, ...held];
    const kinds = [...new Set(own.map(mark => mark.kind))].sort((a, b) => Object.keys(KINDS).indexOf(a) - Object.keys(KINDS).indexOf(b));
    const amount = shade ? this.amount(shade) : "";
    const room = 21 - amount.length;
    const module = g.modules[number];
    const title = kind === "node" ? titleOf(graph, number) : `module ${module.path || module.label} ${module.label} ${module.class_name}`;
    const name = kind === "node" ? `${idOf(graph, number).replace(/.*\//, "")} ${g.node_name[number]}` : module.class_name || "module";
    return {
      first: kind === "node" ? cut(g.op_types[g.node_op[number]], 22) : middle(module.label, 21),
      second: [room < 6 ? "" : middle(name, room), amount].filter(Boolean).join("  "),
      kinds, sign: kinds.length ? KINDS[kinds[0]][0] : "", colors: shade ? colors(shade.share) : null,
      label: [title, amount, ...kinds.map(each => (at.some(mark => mark.kind === each) ? KINDS[each][1] : `holds ${KINDS[each][1]}`)), kind === "node" && g.opens.has(number) ? "opens" : "", ...own.slice(0, 2).map(mark => mark.text)].filter(Boolean).join("; "),
      reached: kind === "node" && g.node_reads[number].some(value => reached[graph].has(value)),
    };
  }

  amount(shade) {
    if (!Number.isFinite(shade.weight)) return said(null, shade.bad);
    if (this.measure.limit && this.measure.log) return shade.weight ? `${times(shade.weight)}\u00d7` : "0";
    return `${short(Number(shade.number.toPrecision(3)))} ${this.measure.unit}`;
  }

  /** Go to where a value comes from, or to its first reader elsewhere. */
  goTo(kind, value) {
    const maker = this.g.node_makes.findIndex(made => made.includes(value));
    const here = node => this.shown.has(`node ${node}`);
    let goal = kind === "in" ? maker : readersOf(this.graph, value).find(node => !here(node));
    for (let module = this.open; module >= 0 && !(goal >= 0); module = this.g.modules[module].parent) goal = this.g.doors.get(module); // in and out of a body
    if (goal >= 0) choose(this.graph, goal);
  }

  showPath() {
    const chain = [];
    for (let module = this.open; module >= 0; module = this.g.modules[module].parent) chain.unshift(module);
    const items = chain.flatMap((module, i) => [i ? " \u203a " : "", make("button", { type: "button", class: "link", click: () => this.enterExactly(module), "aria-current": module === this.open && !this.near ? "true" : null }, this.g.modules[module].label)]);
    const close = this.g.close_ups.map(each => make("button", { type: "button", class: "chip", "aria-pressed": String(this.near === each), click: () => { this.near === each ? this.enterExactly(this.open) : (this.enter(this.g.node_module[each.node], each), choose(this.graph, each.node)); } }, `around ${idOf(this.graph, each.node)}`));
    const undrawn = this.near ? 0 : this.g.modules[this.open].undrawn;
    const left = [undrawn && `${undrawn} more values enter or leave`, this.g.left_out && `bodies that are not drawn, for they have too many nodes: ${this.g.left_out}`].filter(Boolean);
    this.path.replaceChildren(...items, " ", ...close, left.length ? make("span", { class: "dim" }, ` ${left.join("; ")}`) : "");
  }

  enterExactly(module) {
    Object.assign(this, { open: module, near: null });
    this.show();
    this.lead();
  }

  /** Open the same module of the other model: the innermost that holds nearly all partners of what is open here. */
  lead() {
    const other = views[1 - this.graph];
    if (!other) return;
    for (let module = this.open; module >= 0; module = this.g.modules[module].parent) {
      const goal = partnerOf(this.g, module, other.g, partners[this.graph]);
      if (goal >= 0) { Object.assign(other, { open: goal, near: null }); other.show(); return; }
    }
  }

  showLegend() {
    this.legend.replaceChildren();
    if (this.shades) {
      const { measure } = this, [low, high] = this.shades.ends, ends = measure.worse === "low" ? [high, low] : [low, high];
      const unit = measure.limit && measure.log ? `\u00d7 what is ${measure.limit}` : measure.unit;
      this.legend.append(`${measure.title}: ${short(ends[0])} `, make("span", { class: "scale", "aria-hidden": "true" }), ` ${short(ends[1])} ${unit}`);
    }
    const kinds = new Set(page.marks.filter(mark => mark.graph === this.graph).map(mark => mark.kind));
    for (const kind of kinds) if (KINDS[kind][0]) this.legend.append(make("span", { class: "key" }, make("b", { class: kind }, KINDS[kind][0]), ` ${KINDS[kind][1]}`));
    const icons = [["reached", "what the culprit reaches", reached[this.graph].size], ["opens", "opens at a click", this.g.modules.length > 1], ["ends", "comes in or goes out", true]];
    for (const [icon, text, known] of icons) if (known) this.legend.append(make("span", { class: "key" }, make("i", { class: icon }), ` ${text}`));
  }

  /** Show which box is chosen. */
  outline() {
    for (const box of this.shown.values()) box.classList.remove("chosen");
    const box = this.shown.get(`node ${this.chosen()}`);
    if (box) box.classList.add("chosen");
  }

  /** Show what was in view of the same drawing; else what is marked, or the top above an output: a wide drawing has them anywhere. */
  first(seen, drawing) {
    const marked = this.svg.querySelector(".box > circle.badge"), out = this.svg.querySelector(".box.out");
    if (seen.drawing === drawing) this.area.scrollTo(seen);
    else if (marked) this.reveal(marked.parentNode);
    else if (out) { this.reveal(out); this.area.scrollTop = 0; }
    this.seen = drawing;
  }

  reveal(box) {
    const x = Number(box.dataset.x) * this.zoom, y = Number(box.dataset.y) * this.zoom;
    this.area.scrollTo({ left: x - this.area.clientWidth / 2, top: y - this.area.clientHeight / 2 });
  }

  scale(by) {
    const fit = Math.min(1, Math.max(0.8, (this.area.clientWidth - 8) / this.size[0]));
    this.zoom = by === 1 ? fit : Math.min(3, Math.max(0.1, this.zoom * by));
    const [width, height] = this.size;
    for (const [name, value] of Object.entries({ viewBox: `0 0 ${width} ${height}`, width: width * this.zoom, height: height * this.zoom })) this.svg.setAttribute(name, value);
  }

  /** Arrows go to the nearest box that way, Backspace to the module around. */
  key(event) {
    const ways = { ArrowUp: [0, -1], ArrowDown: [0, 1], ArrowLeft: [-1, 0], ArrowRight: [1, 0] };
    if (event.key === "Backspace" && this.g.modules[this.open].parent >= 0) this.enterExactly(this.g.modules[this.open].parent);
    else if (ways[event.key] && document.activeElement.dataset.x) {
      event.preventDefault();
      const [dx, dy] = ways[event.key], from = document.activeElement;
      let best = null, least = Infinity;
      for (const box of this.shown.values()) {
        const x = box.dataset.x - from.dataset.x, y = box.dataset.y - from.dataset.y, along = x * dx + y * dy;
        const far = along + 2 * Math.abs(x * dy + y * dx);
        if (along > 1 && far < least) [best, least] = [box, far];
      }
      if (best) { best.focus({ preventScroll: true }); this.reveal(best); }
    }
  }
}

/** How many times what is allowed, in few characters. */
const times = weight => (weight >= 0.01 && weight < 1e4 ? Number(weight.toPrecision(2)) : weight.toExponential(0).replace("+", ""));

/** Where a line's label may stand, the best first: near the end where it is alone. */
function spotsOf(points, fans) {
  if (points.length > 2) return points.slice(1, -1).sort((a, b) => Math.abs(a[1] - points[points.length >> 1][1]) - Math.abs(b[1] - points[points.length >> 1][1]));
  const [[x0, y0], [x1, y1]] = points, order = Math.abs(x1 - x0) < 12 ? [0.5, 0.3, 0.68] : fans ? [0.68, 0.5, 0.3] : [0.3, 0.5, 0.68];
  return order.map(t => [x0 + (x1 - x0) * t * t * (3 - 2 * t), y0 + (y1 - y0) * t]);
}

/** The innermost module that holds nearly all partners of a module's nodes; -1 where there are none. */
function partnerOf(g, module, other, same) {
  const votes = new Map();
  g.node_module.forEach((holder, node) => {
    if (!same.has(node) || !isWithin(g, holder, module)) return;
    for (let at = other.node_module[same.get(node)]; at >= 0; at = other.modules[at].parent) votes.set(at, (votes.get(at) || 0) + 1);
  });
  const sure = 0.9 * Math.max(0, ...votes.values());
  const alike = other.modules.findIndex(each => each.path === g.modules[module].path);
  if (votes.get(alike) * 2 > sure) return alike;
  const held = [...votes.keys()].filter(at => votes.get(at) >= sure);
  return held.find(at => !held.some(inner => inner !== at && isWithin(other, inner, at))) ?? -1;
}

/** Whether a module lies in another, or is it. */
function isWithin(g, module, outer) {
  for (; module >= 0; module = g.modules[module].parent) if (module === outer) return true;
  return false;
}

/** A name's end tells most. */
const middle = (text, most) => {
  const start = Math.floor(most / 3);
  return text.length > most ? `${text.slice(0, start)}\u2026${text.slice(start + 1 - most)}` : text;
};
const cut = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}\u2026` : text);
