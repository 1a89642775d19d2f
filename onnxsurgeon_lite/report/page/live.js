// The tensors of the chosen node, from the session that serves this page.

const live = make("section", { id: "live", "aria-label": "Tensors of the chosen node", "aria-live": "polite" });
part("model").after(live);
let asked = 0;

document.addEventListener("chosen", async () => {
  const mine = ++asked, { graph, node } = choice;
  live.replaceChildren();
  if (node === null || graph !== 0) return;
  const say = text => live.replaceChildren(make("h2", {}, titleOf(graph, node)), make("p", { class: "dim" }, text));
  say("computing ...");
  const found = await fetch(`tensors/${node}`).then(answer => answer.json()).catch(() => ({ tensors: [], error: "the session has ended: start onnxdbg view again" }));
  if (mine !== asked) return;
  say(found.error || (found.tensors.length ? "" : "it makes nothing that can be drawn"));
  for (const tensor of found.tensors) {
    const view = make("div", { class: "tensor" });
    live.append(view);
    showTensor(tensor, view);
  }
});
