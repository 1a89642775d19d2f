// Tables; a row that belongs to a node chooses it.

function showTables() {
  if (!page.tables.length) part("tables").remove();
  for (const table of page.tables) {
    const rows = table.rows.map((row, i) => {
      const node = table.nodes[i], go = node && (() => choose(node[0], node[1]));
      const cells = row.map((cell, column) =>
        make("td", {}, go && column === 0 ? make("button", { class: "link", type: "button" }, cell || "show") : cell));
      return make("tr", go ? { click: go, class: "goes" } : {}, ...cells);
    });
    part("tables").append(
      make("h2", {}, table.title),
      make("div", { class: "wide" }, make("table", {}, make("thead", {}, make("tr", {}, ...table.columns.map(c => make("th", { scope: "col" }, c)))), make("tbody", {}, ...rows))),
      ...(table.left_out ? [make("p", { class: "dim" }, `and ${table.left_out} more, which are not shown`)] : []),
    );
  }
}
