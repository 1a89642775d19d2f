// All that is known of the chosen node.

document.addEventListener("chosen", () => {
  const { graph, node } = choice, aside = part("details");
  if (!aside) return;
  if (node === null) { aside.replaceChildren(make("p", { class: "dim" }, "Choose a box, a point or a row.")); return; }
  const g = page.graphs[graph];
  const values = (numbers, what) => numbers.length ? [make("h4", {}, what), make("ul", {}, ...numbers.map(value => make("li", {}, valueButton(graph, value, what), make("span", { class: "dim" }, ` ${typeOf(graph, value)}`))))] : [];
  const facts = page.measures.filter(m => m.graph === graph).flatMap(measure => measure.nodes.flatMap((other, i) => other === node ? [[measure, i]] : []));
  aside.replaceChildren(
    make("h3", {}, titleOf(graph, node)),
    make("p", { class: "dim" }, placeOf(graph, node)),
    ...(marks[graph].get(node) || []).map(mark => make("p", { class: `mark ${mark.kind}` }, make("b", {}, `${KINDS[mark.kind][0]} ${KINDS[mark.kind][1]} `), mark.text)),
    ...facts.slice(0, 12).map(([measure, i]) => make("p", { class: measure.bad[i] ? "bad" : "" }, `${measure.unit} ${said(measure.numbers[i], measure.bad[i])}${measure.limits[i] === null ? "" : ` (${measure.limit} ${short(measure.limits[i])})`}${measure.names[i] ? ` at ${measure.names[i]}` : ""}`)),
    ...values(g.node_reads[node], "reads"),
    ...values(g.node_makes[node], "makes"),
    g.attributes[g.node_attributes[node]] ? make("h4", {}, "attributes") : null,
    g.attributes[g.node_attributes[node]] ? make("p", { class: "code" }, g.attributes[g.node_attributes[node]]) : null,
  );
});

/** A value; pressed, it chooses the node at its other end. */
function valueButton(graph, value, what) {
  const g = page.graphs[graph];
  const goal = what === "reads" ? g.node_makes.findIndex(made => made.includes(value)) : readers[graph][value][0];
  if (goal === undefined || goal < 0) return make("span", { class: "code" }, g.values[value]);
  return make("button", { type: "button", class: "link", click: () => choose(graph, goal), title: titleOf(graph, goal) }, g.values[value]);
}
