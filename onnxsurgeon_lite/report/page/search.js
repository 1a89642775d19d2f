// Search by id, name, operator or value; `/` goes there, arrows and Enter choose.

const MOST_HITS = 20;

/** The nodes that a text fits, the best first: an id, a name, a value, an operator; then parts of these. */
function hits(text) {
  const wanted = text.trim().toLowerCase(), found = [];
  if (!wanted) return found;
  for (const exact of [true, false])
    for (let graph = 0; graph < page.graphs.length; graph++) {
      const g = page.graphs[graph];
      for (let node = 0; node < g.node_op.length && found.length < MOST_HITS; node++) {
        const words = [idOf(graph, node), g.node_name[node], g.op_types[g.node_op[node]], ...g.node_makes[node].map(value => g.values[value])].map(word => word.toLowerCase());
        const fits = exact ? words.includes(wanted) : words.some(word => word.includes(wanted)) && !words.includes(wanted);
        if (fits) found.push([graph, node]);
      }
    }
  return found;
}

function startSearch() {
  const query = part("query"), list = part("hits");
  if (!page.graphs.length) { part("search").remove(); return; }
  let at = -1;
  const close = () => { list.hidden = true; query.setAttribute("aria-expanded", "false"); };
  const go = item => { if (item) { close(); choose(Number(item.dataset.graph), Number(item.dataset.node)); part("model").scrollIntoView({ block: "start" }); } };
  query.addEventListener("input", () => {
    const items = hits(query.value).map(([graph, node]) => {
      const item = make("li", { role: "option", click: event => go(event.currentTarget) }, titleOf(graph, node), make("span", { class: "dim" }, ` ${placeOf(graph, node)}`));
      Object.assign(item.dataset, { graph, node });
      return item;
    });
    list.replaceChildren(...(items.length || !query.value ? items : [make("li", { class: "dim" }, "nothing is called so")]));
    list.hidden = !query.value;
    query.setAttribute("aria-expanded", String(!list.hidden));
    at = -1;
  });
  query.addEventListener("keydown", event => {
    const items = [...list.querySelectorAll("[role=option]")];
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      at = Math.max(0, Math.min(items.length - 1, at + (event.key === "ArrowDown" ? 1 : -1)));
      items.forEach((item, i) => item.setAttribute("aria-selected", String(i === at)));
    } else if (event.key === "Enter") go(items[Math.max(at, 0)]);
    else if (event.key === "Escape") { close(); query.blur(); }
  });
  document.addEventListener("keydown", event => {
    if (event.target.matches("input, textarea, select")) return;
    if (event.key === "/") { event.preventDefault(); query.focus(); query.select(); }
    if (event.key === "Escape") choose(0, null);
  });
  document.addEventListener("click", event => { if (!part("search").contains(event.target)) close(); });
}
