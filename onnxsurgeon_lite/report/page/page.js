"use strict";
// The data of the page, and what every part of it needs. Text of the model goes in as text, never as markup.

const page = JSON.parse(document.getElementById("data").textContent);
const part = id => document.getElementById(id);

/** Make an element: attributes, functions for events, then children or text. */
function make(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/** The same for a drawing. */
function draw(tag, attributes = {}, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value !== null && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter(child => child !== null && child !== undefined));
  return element;
}

/** Nodes in bodies have ids, such as `@12/body/@3`, and numbers behind those of the others. */
for (const g of page.graphs) {
  g.first_inner = g.node_op.length - g.inner_ids.length;
  g.numbers = new Map(g.inner_ids.map((id, i) => [id, g.first_inner + i]));
  g.opens = new Map(g.bodies); // node -> the module of its bodies
  g.doors = new Map(g.bodies.map(([node, module]) => [module, node]));
}
const idOf = (graph, node) => page.graphs[graph].inner_ids[node - page.graphs[graph].first_inner] || `@${node}`;

/** The number of a node; of one that is not drawn that of the node around it. */
function numberOf(graph, node) {
  if (typeof node === "number" || !page.graphs[graph]) return node;
  for (let id = node; id.includes("/"); id = id.replace(/\/[^/]*\/[^/]*$/, ""))
    if (page.graphs[graph].numbers.has(id)) return page.graphs[graph].numbers.get(id);
  return Number(/^@(\d+)/.exec(node)[1]);
}
for (const measure of page.measures) {
  measure.nodes = measure.nodes.map(node => numberOf(measure.graph, node));
  if (!measure.names.length) measure.names = measure.nodes.map(node => page.graphs[measure.graph].node_name[node]);
}
for (const each of [...page.marks, ...page.tensors]) each.node = numberOf(each.graph, each.node);
for (const table of page.tables) table.nodes = table.nodes.map(at => at && [at[0], numberOf(...at)]);

/** What a node is called: `Conv 'Conv_6' (@6)`. */
function titleOf(graph, node) {
  const g = page.graphs[graph], name = g.node_name[node];
  return `${g.op_types[g.node_op[node]]}${name ? ` '${name}'` : ""} (${idOf(graph, node)})`;
}

/** Module and source line of a node. */
function placeOf(graph, node) {
  const g = page.graphs[graph], module = g.modules[g.node_module[node]];
  const scope = module.path + (module.path && module.class_name ? ` (${module.class_name})` : "");
  return [scope, g.sources[g.node_source[node]]].filter(Boolean).join(", ");
}

/** Name and type of a value. */
const typeOf = (graph, value) => page.graphs[graph].types[page.graphs[graph].value_type[value]];

/** A line of text with a button that copies it. */
function copied(text) {
  const button = make("button", { class: "copy", type: "button", "aria-label": "Copy the command" }, "copy");
  button.addEventListener("click", () => {
    const area = make("textarea", {}, text);
    document.body.append(area);
    area.select();
    document.execCommand("copy"); // a page from a file has no clipboard of its own
    area.remove();
    button.textContent = "copied";
  });
  return make("div", { class: "command" }, make("code", {}, text), button);
}
