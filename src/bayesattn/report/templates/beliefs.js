// The belief player: step through a sequence, the model's belief beside the exact posterior.
const player = (host, data) => {
  const state = { sequence: 0, step: 0, timer: null };
  const id = host.id;
  const pick = element("select", { id: `${id}-sequence` });
  data.sequences.forEach((_, at) => pick.append(element("option", { value: at }, `sequence ${at + 1}`)));
  const slider = element("input", { type: "range", id: `${id}-step`, min: 0, max: data.sequences[0].posterior.length - 1, step: 1, value: 0 });
  const button = (label, act) => {
    const made = element("button", { type: "button" }, label);
    made.addEventListener("click", act);
    return made;
  };
  const play = button("play", () => (state.timer ? stop() : start()));
  const controls = element("div", { class: "player" },
    element("label", { for: `${id}-sequence` }, "Show "), pick,
    button("back", () => go(state.step - 1)), play, button("next", () => go(state.step + 1)),
    element("label", { for: `${id}-step` }, "step "), slider);
  const said = element("p", { class: "said", "aria-live": "polite" });
  const pictures = element("div", { class: "pictures" });
  host.append(controls, said, pictures);

  const stop = () => { clearInterval(state.timer); state.timer = null; play.textContent = "play"; };
  const start = () => {
    if (state.step === Number(slider.max)) go(0);
    play.textContent = "pause";
    state.timer = setInterval(() => (state.step < Number(slider.max) ? go(state.step + 1) : stop()), 700);
  };
  const go = (step) => {
    state.step = Math.min(Math.max(step, 0), Number(slider.max));
    slider.value = state.step;
    draw();
  };
  pick.addEventListener("change", () => { state.sequence = Number(pick.value); stop(); go(0); });
  slider.addEventListener("input", () => { stop(); go(Number(slider.value)); });

  const bits = (row) => -row.reduce((sum, p) => sum + (p > 0 ? p * Math.log2(p) : 0), 0);
  const draw = () => {
    const shown = data.sequences[state.sequence];
    const bayes = shown.posterior[state.step], model = shown.model[state.step];
    const divergence = bayes.reduce((sum, p, at) => sum + (p > 0 ? p * Math.log2(p / Math.max(model[at], 1e-12)) : 0), 0);
    host.found = { step: state.step, bayes, model, divergence };
    said.textContent = `${shown.steps[state.step]} Entropy: Bayes ${bits(bayes).toFixed(3)} bits, ` +
      `model ${bits(model).toFixed(3)} bits; KL(Bayes ‖ model) ${Math.max(divergence, 0).toFixed(4)} bits. ` +
      `It was ${data.outcomes[shown.labels[state.step]]}.`;
    pictures.replaceChildren(bars(data.outcomes, bayes, model, shown.labels[state.step]),
      attentionRows(shown, state.step));
  };
  go(Math.round(slider.max / 2));
};

const bars = (names, bayes, model, truth) => {
  const width = 430, height = 210, left = 30, low = 24;
  const picture = drawing(width, height, "Probability of each outcome: exact posterior and model");
  const slot = (width - left) / names.length;
  const y = (p) => height - low - (height - low - 22) * p;
  for (const p of [0, 0.5, 1]) {
    picture.append(node("line", { x1: left, x2: width, y1: y(p), y2: y(p), class: "grid" }),
      text(left - 4, y(p) + 4, p, { class: "tick", "text-anchor": "end" }));
  }
  names.forEach((name, at) => {
    const x = left + at * slot;
    picture.append(
      node("rect", { x: x + 0.12 * slot, width: 0.36 * slot, y: y(bayes[at]), height: y(0) - y(bayes[at]), class: "bar c1" }),
      node("rect", { x: x + 0.52 * slot, width: 0.36 * slot, y: y(model[at]), height: y(0) - y(model[at]), class: "bar c0" }),
      text(x + slot / 2, height - 6, at === truth ? `${name}•` : name, { class: "tick", "text-anchor": "middle" }));
  });
  picture.append(node("line", { x1: left, x2: width, y1: y(1 / names.length), y2: y(1 / names.length), class: "needle" }),
    text(width, 11, "dashed: knowing nothing", { class: "tick", "text-anchor": "end" }));
  picture.append(node("rect", { x: left, y: 2, width: 10, height: 10, class: "bar c1" }), text(left + 14, 11, "Bayes", { class: "tick" }),
    node("rect", { x: left + 60, y: 2, width: 10, height: 10, class: "bar c0" }), text(left + 74, 11, "model (• what came)", { class: "tick" }));
  return picture;
};

const attentionRows = (shown, step) => {
  const layers = shown.attention.length, keys = shown.tokens.length;
  const width = WIDE, left = 54, cell = (width - left) / keys, row = 26;
  const picture = drawing(width, layers * row + 34, "Where each layer looks, over the tokens so far");
  for (let layer = 0; layer < layers; layer += 1) {
    picture.append(text(2, layer * row + 17, `layer ${layer}`, { class: "tick" }));
    shown.attention[layer][step].forEach((weight, key) => {
      picture.append(node("rect", { x: left + key * cell, y: layer * row + 2, width: Math.max(cell - 1, 0.5), height: row - 4,
        class: "cell", style: `fill-opacity:${Math.sqrt(weight).toFixed(3)}` }));
    });
  }
  if (cell > 8) {
    shown.tokens.forEach((token, key) => picture.append(
      text(left + (key + 0.5) * cell, layers * row + 14, token, { class: "tick small", "text-anchor": "middle" })));
  }
  picture.append(text(left, layers * row + 30, "attention by layer, mean over heads (darker: more)", { class: "tick" }));
  return picture;
};
