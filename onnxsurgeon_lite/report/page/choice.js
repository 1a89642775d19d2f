// The chosen node. Every part of the page shows it, and any may choose another; the address holds it.

const choice = { graph: 0, node: null };

/** Choose a node, or none; `near` opens its neighborhood where that is drawn. */
function choose(graph, node, near = false) {
  Object.assign(choice, { graph, node });
  const place = node === null ? "" : `${"ab"[graph] === "b" ? "b" : ""}${idOf(graph, node)}`;
  history.replaceState(null, "", place ? `#${place}` : location.pathname + location.search);
  document.dispatchEvent(new CustomEvent("chosen", { detail: { near } }));
}

/** Choose what the address says, else the first thing that is wrong. */
function chooseByAddress() {
  const found = /^#(b?)(@\d+.*)$/.exec(decodeURIComponent(location.hash));
  const graph = found && found[1] ? 1 : 0, node = found ? numberOf(graph, found[2]) : -1;
  if (page.graphs[graph] && node >= 0 && node < page.graphs[graph].node_op.length) choose(graph, node, true);
  else {
    const first = page.marks.find(mark => mark.kind !== "fused" && marks[mark.graph].has(mark.node));
    if (first && page.graphs.length === 1) choose(first.graph, first.node, true);
    else {
      choose(0, null);
      if (views.length) views[0].enter(0); // two models start side by side
    }
  }
}

/** What is marked at a node, and which marks a module, and the bodies of a node, hold. */
const [marks, inside, within] = [0, 1, 2].map(() => page.graphs.map(() => new Map()));
for (const mark of page.marks) {
  const g = page.graphs[mark.graph];
  if (mark.node < 0 || mark.node >= g.node_op.length) continue;
  add(marks[mark.graph], mark.node, mark);
  for (let module = g.node_module[mark.node]; module >= 0; module = g.modules[module].parent) {
    add(inside[mark.graph], module, mark);
    if (g.doors.has(module)) add(within[mark.graph], g.doors.get(module), mark);
  }
}

function add(map, key, item) {
  if (!map.has(key)) map.set(key, []);
  map.get(key).push(item);
}

/** Node -> the same one of the other model, of each. */
const partners = [new Map(page.pairs), new Map(page.pairs.map(([a, b]) => [b, a]))];

/** Nodes in bodies of partners are partners, too. */
if (page.graphs.length > 1) page.graphs[0].inner_ids.forEach((id, i) => {
  const [a, b] = page.graphs, around = partners[0].get(parseInt(id.slice(1), 10)), other = b.numbers.get(id.replace(/^@\d+/, `@${around}`));
  if (other === undefined || a.op_types[a.node_op[a.first_inner + i]] !== b.op_types[b.node_op[other]]) return;
  partners[0].set(a.first_inner + i, other);
  partners[1].set(other, a.first_inner + i);
});

/** Value -> its readers, of each graph, once anybody asks; then what culprits reach. */
const known = page.graphs.map(() => null); // value -> its readers
function readersOf(graph, value) {
  if (!known[graph]) {
    const found = known[graph] = new Map();
    page.graphs[graph].node_reads.forEach((values, node) => values.forEach(each => add(found, each, node)));
  }
  return known[graph].get(value) || [];
}
const reached = page.graphs.map((g, graph) => {
  const values = new Set(), pending = page.marks.filter(m => m.graph === graph && m.kind === "culprit").map(m => m.node);
  const seen = new Set(pending), reach = node => { if (!seen.has(node)) { seen.add(node); pending.push(node); } };
  while (pending.length) {
    const from = pending.pop();
    for (const value of g.node_makes[from] || []) {
      values.add(value);
      readersOf(graph, value).forEach(reach);
    }
    for (let module = g.node_module[from]; module >= 0; module = g.modules[module].parent) // out of a body
      if (g.doors.has(module)) reach(g.doors.get(module));
  }
  return values;
});
