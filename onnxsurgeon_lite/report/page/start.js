// Everything in its order, then what the address chooses.

function showMade() {
  const versions = Object.entries(page.versions).map(([name, version]) => `${name} ${version}`).join(", ");
  const data = part("data").textContent;
  const link = make("a", { href: "#", download: `${page.command}.json`, click: event => {
    event.currentTarget.href = URL.createObjectURL(new Blob([JSON.stringify(page.result, null, 2)], { type: "application/json" }));
  } }, "the result as JSON");
  part("made").append(make("p", { class: "dim" }, `Made by onnxdbg ${page.command} with ${versions}. Inside: `, link, `, and all that is drawn (${Math.ceil(data.length / 1024)} KB, in the element "data").`));
}

function start() {
  showVerdict();
  showGraphs();
  showAlong();
  showTensors();
  showTables();
  showMade();
  startSearch();
  chooseByAddress();
  addEventListener("hashchange", chooseByAddress);
  document.body.dataset.ready = "yes";
}
start();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => location.reload());
