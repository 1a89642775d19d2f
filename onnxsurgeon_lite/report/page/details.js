// All that is known of the chosen node.

const MOST_FACTS = 4;

document.addEventListener("chosen", () => {
  const { graph, node } = choice, aside = part("details");
  if (!aside) return;
  if (node === null) { aside.replaceChildren(make("p", { class: "dim" }, "Choose a box, a point or a row."), make("p", { class: "dim" }, "Keys: / searches, arrows go from box to box, Enter opens, Backspace goes back, Esc chooses nothing.")); return; }
  const g = page.graphs[graph];
  const values = (numbers, what) => numbers.length ? [make("h4", {}, what), make("ul", {}, ...numbers.map(value => make("li", {}, valueButton(graph, value, what), make("span", { class: "dim" }, ` ${typeOf(graph, value)}`))))] : [];
  const attributes = g.attributes[g.node_attributes[node]];
  aside.replaceChildren(
    make("h3", {}, titleOf(graph, node)),
    make("p", { class: "dim" }, placeOf(graph, node)),
    ...(marks[graph].get(node) || []).map(mark => make("p", { class: `mark ${mark.kind}` }, make("b", {}, `${KINDS[mark.kind][0]} ${KINDS[mark.kind][1]} `), mark.text)),
    ...measuresOf(graph).flatMap(measure => facts(measure, node)),
    ...values(g.node_reads[node], "reads"),
    ...values(g.node_makes[node], "makes"),
    ...(attributes ? [make("h4", {}, "attributes"), make("p", { class: "code" }, attributes)] : []),
  );
});

/** What a measure says of a node: the sum of what adds up, else every number with its limit. */
function facts(measure, node) {
  const own = measure.nodes.flatMap((other, i) => (other === node ? [i] : []));
  if (!own.length) return [];
  const title = measuresOf(measure.graph).length > 1 ? `${measure.title}: ` : "";
  if (measure.combine === "sum") {
    const sum = own.reduce((all, i) => all + measure.numbers[i], 0);
    return [make("p", {}, `${measure.title}: ${short(sum)} ${measure.unit}`)];
  }
  return own.slice(0, MOST_FACTS).map(i => {
    const limit = measure.limits[i] === null ? "" : ` (${measure.limit} ${short(measure.limits[i])})`;
    return make("p", { class: measure.bad[i] ? "bad" : "" }, `${title}${said(measure.numbers[i], measure.bad[i])} ${measure.unit}${limit} at ${measure.names[i]}`);
  });
}

/** A value; pressed, it chooses the node at its other end. */
function valueButton(graph, value, what) {
  const g = page.graphs[graph];
  const goal = what === "reads" ? g.node_makes.findIndex(made => made.includes(value)) : readersOf(graph, value)[0];
  if (goal === undefined || goal < 0) return make("span", { class: "code" }, g.values[value]);
  return make("button", { type: "button", class: "link", click: () => choose(graph, goal), title: titleOf(graph, goal) }, g.values[value]);
}
