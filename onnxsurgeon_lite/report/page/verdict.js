// What was found, and what to type.

const SIGNS = { agrees: "\u2713", mismatch: "\u2717", unknown: "?", facts: "" };

function showVerdict() {
  const { state, headlines, details, steps } = page.verdict;
  part("title").append(make("span", { class: "dim" }, `onnxdbg ${page.command} `), page.title);
  part("verdict").className = state;
  const [first, ...rest] = headlines;
  part("verdict").append(
    make("p", { class: "headline" }, SIGNS[state] ? make("span", { class: "sign", "aria-hidden": "true" }, SIGNS[state]) : "", first || ""),
    ...rest.map(line => make("p", {}, line)),
    ...steps.map(step => make("div", { class: "step" }, make("p", {}, step.what), step.command ? copied(step.command) : null)),
    ...page.notes.map(note => make("p", { class: "dim" }, `note: ${note}`)),
    ...(details.length > 1 ? [make("details", {}, make("summary", {}, "as the command prints it"), make("pre", {}, details.join("\n")))] : []),
  );
}
